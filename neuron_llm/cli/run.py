"""`neuron-llm run`: prompts from a file, or a chat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from neuron_llm.cli.terminal.console import ExitCode
from neuron_llm.cli.terminal.options import (
    ArtifactOption,
    JsonOption,
    QuietOption,
    VerboseOption,
    choose_artifact,
    open_console,
    read_template,
)
from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.generation_defaults import generation_defaults
from neuron_llm.runtime.run_log import STATE_DIR, new_run_log
from neuron_llm.runtime.sampling.sampling_params import SamplingParams


def run_command(
    ctx: typer.Context,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE", help="JSON lines; without it, a chat begins."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where records go instead of stdout."),
    ] = None,
    artifact: ArtifactOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the output file ends.")
    ] = False,
    trace_out: Annotated[
        Path | None,
        typer.Option(
            "--trace-out", metavar="FILE", help="Write a Chrome trace of every step, to look at."
        ),
    ] = None,
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Write `token_ids` into the records.")
    ] = False,
    temperature: Annotated[float | None, typer.Option(help="From 0 (greedy) to 2.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Over 0, up to 1.")] = None,
    top_k: Annotated[int | None, typer.Option(help="0 for all tokens.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Relative to the likeliest, 0 to 1.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the draws repeatable.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Over 1, prompt and output tokens are less likely.")
    ] = None,
    presence_penalty: Annotated[
        float | None, typer.Option(help="-2 to 2, off tokens that the output has.")
    ] = None,
    frequency_penalty: Annotated[
        float | None, typer.Option(help="-2 to 2, the same for each time.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="Completions per prompt.")] = None,
    logprobs: Annotated[
        int | None, typer.Option(help="Most likely tokens per output token to record.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most output tokens.")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="No stop before so many.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Ends the output; may be repeated.")
    ] = None,
    stop_token_id: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Ends the output; may be repeated.")
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on after end of sequence.")
    ] = False,
    template: Annotated[
        Path | None,
        typer.Option(
            "--template", metavar="FILE", help="Jinja chat template, in place of the model's."
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Chat: continue plain text.")] = False,
    no_self_test: Annotated[
        bool, typer.Option("--no-self-test", help="Do not compare golden tokens when loading.")
    ] = False,
    reproducible: Annotated[
        bool,
        typer.Option("--reproducible", help="The same answers whatever else runs; pads more."),
    ] = False,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a file of prompts, or chat.

    Example: neuron-llm run --prompts examples/prompts.jsonl -o answers.jsonl --temperature 0
    """
    console = open_console(ctx, verbose=verbose, quiet=quiet)
    flags = _given_flags(
        {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "repetition_penalty": repetition_penalty,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "n": n,
            "logprobs": logprobs,
            "max_tokens": max_tokens,
            "min_tokens": min_tokens,
            "stop": stop,
            "stop_token_ids": stop_token_id,
            "ignore_eos": ignore_eos or None,
        }
    )
    _check_usage(
        {
            "--output": output,
            "--force": force,
            "--resume": resume,
            "--trace-out": trace_out,
            "--token-ids": token_ids,
            "--json": json_output,
            "--n": n is not None,
            "--logprobs": logprobs is not None,
        },
        {"--raw": raw},
        is_batch=prompts is not None,
    )
    if raw and template is not None:
        raise typer.BadParameter("`--template` and `--raw` exclude each other")
    if json_output and output is None:
        raise typer.BadParameter("`--json` needs `-o FILE`: without it, stdout has the records")
    if resume and (output is None or force):
        raise typer.BadParameter("`--resume` needs `-o FILE`, and excludes `--force`")
    directory, manifest = choose_artifact(artifact, console)
    chat_template = None if template is None else read_template(template)
    engine_options = EngineOptions(self_test=not no_self_test, reproducible=reproducible)
    if prompts is None:
        from neuron_llm.cli.chat import ChatSettings, run_chat

        # Null is what the context leaves: a reply has no natural length of 16 tokens.
        defaults = generation_defaults(directory, manifest)
        params = SamplingParams.merged(flags, defaults, {"max_tokens": None})
        log = new_run_log(manifest.artifact_id, STATE_DIR)
        chat = ChatSettings(directory, params, chat_template, raw, engine_options)
        code = run_chat(chat, log, console)
    else:
        from neuron_llm.cli.batch import run_batch_command
        from neuron_llm.runtime.batch.job import BatchJob

        job = BatchJob(
            artifact=directory,
            prompts=prompts,
            output=output,
            existing_output="resume" if resume else "replace" if force else "refuse",
            sampling=flags,
            include_token_ids=token_ids,
            chat_template=chat_template,
            engine_options=engine_options,
            trace_out=trace_out,
            state_dir=STATE_DIR,
        )
        code = run_batch_command(job, manifest, console, json_output=json_output)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _given_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, checked like the fields of a line.

    Raises:
        typer.BadParameter: a value is out of range, or two contradict each other.
    """
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    try:
        # `min_tokens` may fit what only a line or the model says about `max_tokens`.
        SamplingParams.merged(given, {"max_tokens": None})
    except RequestError as error:
        raise typer.BadParameter(error.message) from error
    return given


def _check_usage(
    batch_only: dict[str, object], chat_only: dict[str, object], *, is_batch: bool
) -> None:
    """Refuse options that would have no effect.

    Raises:
        typer.BadParameter: names the option.
    """
    for name, value in (chat_only if is_batch else batch_only).items():
        if value:
            condition = "without `--prompts`" if is_batch else "with `--prompts`"
            raise typer.BadParameter(f"`{name}` works only {condition}")
