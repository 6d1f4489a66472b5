"""`bucket-report --write`: the lists that are recommended, in a copy of the configuration."""

from __future__ import annotations

from pathlib import Path

import typer

from neuron_llm.cli.render.report_lines import sizes
from neuron_llm.cli.terminal.console import Console
from neuron_llm.compile.written_config import ChosenLists, check_destination, write_config
from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.bucket_report import BucketReport


def check_write_usage(config: Path | None, write: Path | None, *, force: bool) -> None:
    """Refuse flags that lead to nothing.

    Raises:
        typer.BadParameter: says which.
        NeuronLLMError: there is a file already, which would be found out only after all the work.
    """
    if write is not None and config is None:
        raise typer.BadParameter("`--write` needs CONFIG, which it writes a copy of")
    if force and write is None:
        raise typer.BadParameter("`--force` has no effect without `--write`")
    if write is not None:
        check_destination(write, force=force)


def write_recommendation(
    console: Console,
    report: BucketReport,
    destination: Path,
    *,
    is_forced_list: bool,
    force: bool,
) -> None:
    """Write a copy of the configuration with the recommended lists.

    Args:
        console: told what was written.
        report: on a configuration.
        destination: the copy.
        is_forced_list: the prefill list was asked for, whether or not it saves anything.
        force: replace a file that is there.

    Raises:
        NeuronLLMError: there is no workload, nothing better than what is configured, or no way to
            write it.
    """
    lists = _choose(report, is_forced_list=is_forced_list)
    write_config(report.subject.path, destination, lists, force=force)
    advice = report.prefill
    assert advice is not None
    if lists.num_batched_tokens_buckets is not None and not advice.is_saving:
        console.warn(f"no saving: {advice.against_current.description}")
    for key, value in vars(lists).items():
        if value is not None:
            console.notice(f"{key}: {value if isinstance(value, int) else sizes(value)}")
    console.notice(f"wrote {destination}")
    console.notice(f"next: neuron-llm compile {destination}")


def _choose(report: BucketReport, *, is_forced_list: bool) -> ChosenLists:
    advice, what_if = report.prefill, report.what_if
    if advice is None and report.workload is not None:
        raise NeuronLLMError(
            "nothing to write: no prompt of the workload can run within `max_model_len`",
            hint="raise `max_model_len`, or give another workload",
        )
    if advice is None:
        raise NeuronLLMError(
            "there is no workload to choose buckets for",
            hint="give one with `--prompts FILE` or `--trace FILE`",
        )
    is_chosen = advice.is_saving or is_forced_list
    tokens = advice.recommended.buckets if is_chosen else None
    limit = advice.limits.max_chunk_tokens
    is_decode_chosen = what_if is not None and what_if.is_decode_advised
    choice = what_if.decode_choice if what_if is not None and is_decode_chosen else None
    if tokens is None and choice is None:
        raise NeuronLLMError(
            f"nothing to write: no other {advice.limits.max_graphs} prefill graphs leave less"
            " padding than those configured",
            hint="allow more with `--max-graphs N`",
        )
    is_limit_changed = tokens is not None and limit != report.subject.plan.max_num_batched_tokens
    return ChosenLists(
        max_num_batched_tokens=limit if is_limit_changed else None,
        num_batched_tokens_buckets=tokens,
        num_seqs_buckets=choice.num_seqs_buckets if choice else None,
        decode_context_length_buckets=choice.decode_context_length_buckets if choice else None,
    )
