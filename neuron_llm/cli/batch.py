"""A batch job from the command line: open the files, load, run, sum up."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from neuron_llm.artifact.manifest import Manifest, file_sha256
from neuron_llm.backends.state_transfers import MovesState
from neuron_llm.cli.engine_loading import loaded_engine
from neuron_llm.cli.render.batch_progress import BatchStatus
from neuron_llm.cli.render.batch_summary import render_summary
from neuron_llm.cli.render.table import counted
from neuron_llm.cli.terminal.console import Console, ExitCode
from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.run.padding_price import PaddingPrice
from neuron_llm.runtime.batch.batch import BatchOptions, BatchResult, run_batch
from neuron_llm.runtime.batch.duplicate_ids import check_unique_ids
from neuron_llm.runtime.batch.metrics import RunMetrics
from neuron_llm.runtime.batch.output_file import begin_output, open_output
from neuron_llm.runtime.batch.prompt_lines import BadLine, PromptLine
from neuron_llm.runtime.batch.prompts import PromptReader, open_prompts
from neuron_llm.runtime.batch.records import OrderedRecordWriter
from neuron_llm.runtime.batch.resume import (
    JobIdentity,
    check_identity,
    forget_identity,
    write_identity,
)
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.finished_records import FinishedRecords, find_finished_records
from neuron_llm.runtime.watch.chrome_trace import ChromeTraceWriter
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(frozen=True)
class BatchJob:
    """What to run.

    Attributes:
        artifact: directory of the artifact.
        manifest: its index.
        prompts: the prompts file.
        output: where records go; None is stdout.
        force: replace the output file.
        resume: keep the output file's records and go on with the first line that has none.
        options: what holds for every line.
        json_output: write the summary as a JSON document on stdout.
        trace_out: where to write a trace of the run, or None.
        engine_options: how the artifact is served.
    """

    artifact: Path
    manifest: Manifest
    prompts: Path
    output: Path | None
    force: bool
    resume: bool
    options: BatchOptions
    json_output: bool
    trace_out: Path | None
    engine_options: EngineOptions


def run_batch_job(job: BatchJob, console: Console) -> ExitCode:
    """Run every line of a prompts file and tell what it came to.

    Raises:
        NeuronLLMError: a file or the artifact cannot be used; nothing has been run then.
    """
    # A pipe can be read only once.
    if job.prompts.is_file():
        check_unique_ids(job.prompts)
    account, price = PaddingAccount(job.manifest.buckets.all), _padding_price(job)

    def count(step: StepRecord) -> None:
        account.add(step)
        if price is not None:
            price.add(step)

    with ExitStack() as stack:
        reader = PromptReader(stack.enter_context(open_prompts(job.prompts)))
        force = job.force or job.resume
        stream = stack.enter_context(open_output(job.output, prompts=job.prompts, force=force))
        identity = _identity(job)
        finished = _finished_records(job, identity, console)
        trace = _open_trace(job)
        if trace is not None:
            stack.enter_context(trace)
        artifact_id = job.manifest.artifact_id
        engine = stack.enter_context(
            loaded_engine(job.artifact, artifact_id, console, job.engine_options, count, trace)
        )
        output = job.output if job.output is not None and job.output.is_file() else None
        if output is not None and identity is not None:
            write_identity(output, identity)
        begin_output(stream, num_kept_bytes=finished.num_bytes)
        lines = islice(reader, finished.num_records, None)
        writer = OrderedRecordWriter(stream, first_index=finished.num_records)
        result = _run(job, (engine, lines, writer), console)
        if output is not None:
            forget_identity(output)
    if not finished.num_records + result.num_ok + result.num_failed:
        console.warn(f"no prompts in `{job.prompts}`")
    for warning in (*reader.warnings(), *_prefix_caching_warnings(job.manifest, result.metrics)):
        console.warn(warning)
    if trace is not None and trace.failure is not None:
        reason = trace.failure.strerror or str(trace.failure)
        console.warn(f"the trace `{job.trace_out}` is not complete ({reason.lower()})")
    metrics = result.metrics.to_json(result.duration_s) | _transfers(engine)
    if job.json_output:
        console.result(json.dumps(_summary_json(job, metrics, account, price)))
    else:
        console.notice(render_summary(metrics, account, price))
    num_failed = finished.num_failed + result.num_failed
    return ExitCode.SOME_LINES_FAILED if num_failed else ExitCode.OK


def _identity(job: BatchJob) -> JobIdentity | None:
    """Return what a job is made of that may go on; its prompts are read through for that.

    None if its records go to stdout, or its prompts can be read only once.
    """
    if job.output is None or not job.prompts.is_file():
        return None
    options = asdict(job.options)
    flags, defaults = options.pop("flag_fields"), options.pop("generation_fields")
    return JobIdentity(
        artifact_id=job.manifest.artifact_id,
        prompts_sha256=file_sha256(job.prompts),
        options={
            **defaults,
            **flags,
            **options,
            "reproducible": job.engine_options.reproducible,
        },
    )


def _finished_records(
    job: BatchJob, identity: JobIdentity | None, console: Console
) -> FinishedRecords:
    """Return what an earlier run has done of a job that goes on; nothing, if it begins.

    Raises:
        NeuronLLMError: the output is of something else or of another job, or the prompts can be
            read only once.
    """
    if not job.resume or job.output is None or not job.output.is_file():
        return FinishedRecords()
    if identity is None:
        raise NeuronLLMError(
            f"the prompts file `{job.prompts}` can be read only once, so that no job can go on",
            hint="write the prompts to a file",
        )
    with job.output.open("rb") as output, open_prompts(job.prompts) as prompts:
        lines = iter(PromptReader(prompts))
        finished = find_finished_records(job.output, output, lines)
        has_more = next(lines, None) is not None
    if finished.num_records and has_more:
        check_identity(job.output, identity)
    console.notice(f"{counted(finished.num_records, 'line')} done already")
    return finished


def _padding_price(job: BatchJob) -> PaddingPrice | None:
    """Begin to count what reproducibility costs, if it is asked for."""
    return PaddingPrice(job.manifest.buckets) if job.engine_options.reproducible else None


def _open_trace(job: BatchJob) -> ChromeTraceWriter | None:
    """Begin the trace, if one is asked for, when the output is open: both files may be new.

    Raises:
        NeuronLLMError: it would overwrite the prompts or the output, or cannot be written.
    """
    path = job.trace_out
    if path is None:
        return None
    for name, other in (("prompts", job.prompts), ("output", job.output)):
        if other is None or not (other.is_file() and path.is_file()):
            continue
        if os.path.samefile(other, path):
            raise NeuronLLMError(
                f"`{path}` is the {name} file itself", hint="give another name with `--trace-out`"
            )
    return ChromeTraceWriter(path)


def _run(
    job: BatchJob,
    opened: tuple[Engine, Iterator[PromptLine | BadLine], OrderedRecordWriter],
    console: Console,
) -> BatchResult:
    engine, lines, writer = opened
    is_on_terminal = job.output is None and sys.stdout.isatty()
    with BatchStatus(console, is_shown=not is_on_terminal) as status:
        try:
            return run_batch(engine, lines, writer, job.options, status.show)
        except KeyboardInterrupt:
            can_go_on = job.output is not None and job.prompts.is_file()
            way_on = "; the same command with `--resume` goes on" if can_go_on else ""
            console.notice(f"interrupted: {counted(status.num_done, 'line')} done{way_on}")
            raise


def _prefix_caching_warnings(manifest: Manifest, metrics: RunMetrics) -> Iterator[str]:
    """Only whole blocks are shared, and a prompt's last token is always computed."""
    settings, longest = manifest.settings, metrics.max_prompt_tokens
    is_shared = settings.enable_prefix_caching and metrics.num_completed > 1
    if is_shared and longest <= settings.block_size:
        yield (
            f"prefix caching could not hit: no prompt (at most {longest} tokens) spans a full block"
            f" of {settings.block_size} tokens and one more; compile with a smaller `block_size`"
        )


def _transfers(engine: Engine) -> dict[str, int]:
    """Return what moving the KV cache between graphs has cost, where the backend moves it."""
    session = engine.runner.session
    if not isinstance(session, MovesState):
        return {}
    moved = session.transfers
    return {"num_kv_copies": moved.num_copies, "kv_copy_bytes": moved.num_bytes}


def _summary_json(
    job: BatchJob, metrics: dict[str, Any], account: PaddingAccount, price: PaddingPrice | None
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "artifact": str(job.artifact),
        "artifact_id": job.manifest.artifact_id,
        "backend": job.manifest.backend,
        "prompts": str(job.prompts),
        "output": str(job.output),
        **metrics,
        "padding": account.to_json(),
        "reproducible": None if price is None else price.to_json(),
    }
