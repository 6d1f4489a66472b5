"""Chat from the command line: turns from a pipe and from a terminal, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest
from artifact_copy import copy_artifact
from cli_runner import Ended, run_cli
from conftest import Compiled

from neuron_llm.cli.chat import stream_reply
from neuron_llm.cli.terminal.interrupts import interrupt_requested
from neuron_llm.runtime.chat import ChatSession
from neuron_llm.runtime.run_log import STATE_DIR

FLAGS = ("--temperature", 0, "--ignore-eos", "--max-tokens", 6)


def chat(artifact: Path, *turns: str, flags: tuple[object, ...] = ()) -> Ended:
    """Pipe turns into a greedy chat."""
    stdin = "".join(f"{turn}\n" for turn in turns)
    return run_cli("run", "--artifact", artifact, *FLAGS, *flags, stdin=stdin)


@pytest.fixture
def base_model(llama: Compiled, empty_state: Path) -> Path:
    """The artifact of a model without a chat template."""
    name = "tokenizer/tokenizer_config.json"
    config = json.loads((llama.artifact / name).read_text())
    del config["chat_template"]
    return copy_artifact(llama.artifact, Path("base"), {name: config})


def test_piped_turns_get_their_replies_on_stdout(llama: Compiled, empty_state: Path) -> None:
    both = chat(llama.artifact, "hi", "", "/reset", "hi", "/exit", "never sent")
    assert both.code == 0
    reply = chat(llama.artifact, "hi").stdout
    assert reply.endswith("\n") and len(reply) > 1
    assert both.stdout == reply * 2
    assert "> " not in both.stdout
    assert "the conversation begins anew\n" in both.stderr


def test_steps_of_a_chat_are_a_run(llama: Compiled, empty_state: Path) -> None:
    chat(llama.artifact, "hi")
    report = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document
    assert report["total"]["num_uses"] > 0


def test_turn_that_is_too_long_is_told_and_the_others_are_answered(
    llama: Compiled, empty_state: Path
) -> None:
    ended = chat(llama.artifact, "x" * 80, "hi")
    assert ended.code == 3
    assert "error: the conversation is too long: the prompt has " in ended.stderr
    assert "hint: send less, or begin anew with `/reset`\n" in ended.stderr
    assert ended.stdout == chat(llama.artifact, "hi").stdout


def test_model_without_template_names_both_ways_out(base_model: Path) -> None:
    ended = chat(base_model, "hi")
    assert (ended.code, ended.stdout) == (1, "")
    assert "error: the model has no chat template\n" in ended.stderr
    assert "`--template FILE`" in ended.stderr
    assert "`--raw`" in ended.stderr


def test_model_without_template_chats_with_one_that_is_given(
    llama: Compiled, base_model: Path
) -> None:
    config = json.loads((llama.artifact / "tokenizer/tokenizer_config.json").read_text())
    Path("chat.jinja").write_text(config["chat_template"])
    ended = chat(base_model, "hi", flags=("--template", "chat.jinja"))
    assert ended.code == 0
    assert ended.stdout == chat(llama.artifact, "hi").stdout


def test_messages_of_a_batch_go_through_the_template_that_is_given(
    llama: Compiled, base_model: Path
) -> None:
    config = json.loads((llama.artifact / "tokenizer/tokenizer_config.json").read_text())
    Path("chat.jinja").write_text(config["chat_template"])
    line = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 4}
    Path("file.jsonl").write_text(json.dumps(line))
    batch = ("run", "--prompts", "file.jsonl", "--artifact")
    assert run_cli(*batch, base_model).code == 3
    given = run_cli(*batch, base_model, "--template", "chat.jinja")
    assert given.code == 0
    own = run_cli(*batch, llama.artifact)
    assert json.loads(given.stdout)["text"] == json.loads(own.stdout)["text"]


def test_model_without_template_continues_raw_text(base_model: Path) -> None:
    ended = chat(base_model, "hello", flags=("--raw",))
    Path("prompts.jsonl").write_text('{"prompt": "hello"}\n')
    batch = run_cli("run", "--artifact", base_model, "--prompts", "prompts.jsonl", *FLAGS)
    assert ended.code == 0
    assert ended.stdout == batch.records[0]["text"] + "\n"


def test_template_that_cannot_be_read_is_refused(llama: Compiled, empty_state: Path) -> None:
    ended = chat(llama.artifact, "hi", flags=("--template", "none.jinja"))
    assert ended.code == 1
    assert "error: cannot read the chat template `none.jinja`: no such file" in ended.stderr
    assert "loaded" not in ended.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--json",), "`--json` works only with `--prompts`"),
        (("-o", "x"), "`--output` works only with `--prompts`"),
        (("--raw", "--template", "x"), "`--template` and `--raw` exclude each other"),
    ],
)
def test_wrong_flags_are_usage_errors(
    llama: Compiled, empty_state: Path, flags: tuple[object, ...], message: str
) -> None:
    ended = chat(llama.artifact, flags=flags)
    assert (ended.code, ended.stdout) == (2, "")
    assert message in ended.stderr


class _InterruptedSession:
    """Replies without end, and presses Ctrl-C behind the second piece."""

    def __init__(self, num_presses: int) -> None:
        self._num_presses = num_presses
        self.is_closed = False

    def reply(self, text: str) -> Generator[str]:
        try:
            yield text
            yield " "
            for _ in range(self._num_presses):
                os.kill(os.getpid(), signal.SIGINT)
            while True:
                yield "b"
        finally:
            self.is_closed = True


def test_ctrl_c_ends_a_reply_between_two_steps(capsys: pytest.CaptureFixture[str]) -> None:
    session = _InterruptedSession(num_presses=1)
    assert not stream_reply(cast(ChatSession, session), "a")
    assert session.is_closed
    assert capsys.readouterr().out == "a b\n"


def test_ctrl_c_ends_a_chat_through_a_pipe(
    llama: Compiled, empty_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _InterruptedSession(num_presses=1)
    monkeypatch.setattr("neuron_llm.cli.chat.ChatSession", lambda *_, **__: session)
    ended = chat(llama.artifact, "a", "never sent")
    assert (ended.code, ended.stdout) == (130, "a b\n")


def test_second_ctrl_c_ends_the_chat() -> None:
    session = _InterruptedSession(num_presses=2)
    with pytest.raises(KeyboardInterrupt):
        stream_reply(cast(ChatSession, session), "a")
    assert session.is_closed


def test_ctrl_c_is_itself_again_after_a_reply() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupt_requested() as is_requested:
        assert not is_requested()
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


class _Terminal:
    """A chat in a process of its own, on a pseudo-terminal."""

    def __init__(self, artifact: Path) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-m", "neuron_llm.cli.main", "run", "--artifact", str(artifact)]
        self._process = subprocess.Popen(
            [*command, *map(str, FLAGS)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(slave)

    def read_until(self, pattern: str) -> str:
        """Read until the output ends in a match; fails after a minute."""
        shown = ""
        deadline = time.monotonic() + 60
        while not re.search(pattern + r"\Z", shown):
            assert time.monotonic() < deadline, f"no {pattern!r} in {shown!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                shown += os.read(self._master, 65536).decode().replace("\r\n", "\n")
        return shown

    def send(self, text: str) -> None:
        """Type."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Return the exit code."""
        code = self._process.wait(timeout=60)
        os.close(self._master)
        return code


def test_terminal_chat_prompts_replies_and_ends_with_its_input(
    llama: Compiled, empty_state: Path
) -> None:
    terminal = _Terminal(llama.artifact)
    shown = terminal.read_until("\n> ")
    assert "/exit or Ctrl-D ends, /reset forgets, Ctrl-C stops a reply\n" in shown
    terminal.send("hi\n")
    assert terminal.read_until("\n> ").startswith("hi\n")
    terminal.send("\x04")
    assert terminal.wait() == 0
    assert list(STATE_DIR.rglob("last_run.jsonl"))


def test_ctrl_c_at_the_prompt_ends_with_130(llama: Compiled, empty_state: Path) -> None:
    terminal = _Terminal(llama.artifact)
    terminal.read_until("\n> ")
    # Readline shows the prompt a moment before it waits for input.
    time.sleep(0.5)
    terminal.interrupt()
    assert terminal.wait() == 130
