"""The interactive chat, and turns from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.cli.engine_loading import LoadingStatus
from neuron_llm.cli.terminal.console import Console, ExitCode
from neuron_llm.cli.terminal.interrupts import interrupt_requested
from neuron_llm.errors import RequestError
from neuron_llm.runtime.chat import ChatSession
from neuron_llm.runtime.engine.loading import load_engine
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.run_log import RunLogWriter
from neuron_llm.runtime.sampling.sampling_params import SamplingParams

_PROMPT = "> "
_EXIT, _RESET = "/exit", "/reset"


@dataclass(frozen=True)
class ChatSettings:
    """What to chat with.

    Attributes:
        artifact: directory of the artifact.
        params: for every reply.
        template: a Jinja chat template that replaces the model's.
        raw: continue plain text.
        engine_options: how the artifact is served.
    """

    artifact: Path
    params: SamplingParams
    template: str | None
    raw: bool
    engine_options: EngineOptions


def run_chat(settings: ChatSettings, log: RunLogWriter, console: Console) -> ExitCode:
    """Reply to each line of stdin until `/exit` or its end.

    Args:
        settings: what to chat with.
        log: of this run, not yet entered.
        console: where to tell.

    Raises:
        NeuronLLMError: the artifact or the template cannot be used.
    """
    with log:
        with LoadingStatus(console) as loading:
            artifact = Artifact.open(settings.artifact)
            engine = load_engine(artifact, settings.engine_options, on_step=log.write)
        loading.show_loaded(artifact.manifest)
        session = ChatSession(engine, settings.params, template=settings.template, raw=settings.raw)
        code = _talk(session, console)
    if log.warning is not None:
        console.warn(log.warning)
    return code


def _talk(session: ChatSession, console: Console) -> ExitCode:
    is_interactive = sys.stdin.isatty()
    if isinstance(sys.stdin, TextIOWrapper):
        # A line that is no text must not end the session; `_checked` refuses it.
        sys.stdin.reconfigure(errors="surrogateescape")
    if is_interactive:
        console.notice(f"{_EXIT} or Ctrl-D ends, {_RESET} forgets, Ctrl-C stops a reply")
    code = ExitCode.OK
    try:
        for text in _turns(is_interactive):
            if text == _EXIT:
                break
            if text == _RESET:
                session.reset()
                console.notice("the conversation begins anew")
                continue
            try:
                is_whole = stream_reply(session, _checked(text))
            except RequestError as error:
                console.show_failure(error)
                # Nobody can mend a turn that came through a pipe, so the exit code has to tell.
                code = code if is_interactive else ExitCode.SOME_LINES_FAILED
                continue
            # There is nobody at a prompt to go on with the session.
            if not is_whole and not is_interactive:
                return ExitCode.INTERRUPTED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return ExitCode.INTERRUPTED
    return code


def _turns(is_interactive: bool) -> Iterator[str]:
    """Yield the lines of stdin that are not blank, without their ends."""
    read_line = _line_reader(is_interactive)
    while (line := read_line()) is not None:
        if text := line.strip():
            yield text


def _checked(text: str) -> str:
    """Refuse bytes that are no text; reading has let them pass as surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError("the line is not UTF-8", code="invalid_utf8") from error
    return text


def _line_reader(is_interactive: bool) -> Callable[[], str | None]:
    if is_interactive and sys.stdout.isatty():
        import readline  # noqa: F401  # gives `input` its line editing

        return _edited_line
    return _prompted_line if is_interactive else _plain_line


def _edited_line() -> str | None:
    try:
        return input(_PROMPT)
    except EOFError:
        sys.stderr.write("\n")
        return None


def _prompted_line() -> str | None:
    # `input` would write the prompt on stdout, which goes to a file here.
    sys.stderr.write(_PROMPT)
    sys.stderr.flush()
    return _plain_line()


def _plain_line() -> str | None:
    return sys.stdin.readline() or None


def stream_reply(session: ChatSession, text: str) -> bool:
    """Write a reply as it comes; Ctrl-C ends it between two steps.

    Returns:
        Whether the reply came to its own end.
    """
    with interrupt_requested() as is_interrupted, closing(session.reply(text)) as pieces:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
            if is_interrupted():
                break
        sys.stdout.write("\n")
        sys.stdout.flush()
        return not is_interrupted()
