"""Running a batch job from file to file: it can go on, keeps a log, and can be traced.

`batch.py` runs lines through an engine; here are the files around that. What can be refused is
refused before the artifact is loaded, and nothing has been run or overwritten then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice

from neuron_llm.artifact.arguments import check_type
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.manifest import Manifest, file_sha256, read_manifest
from neuron_llm.backends.state_transfers import MovesState
from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.batch import BatchOptions, BatchResult, run_batch
from neuron_llm.runtime.batch.duplicate_ids import check_unique_ids
from neuron_llm.runtime.batch.job import BatchJob, BatchJobResult
from neuron_llm.runtime.batch.metrics import RunMetrics
from neuron_llm.runtime.batch.observer import BatchObserver
from neuron_llm.runtime.batch.output_file import begin_output, open_output
from neuron_llm.runtime.batch.prompt_file import PromptReader, open_prompts
from neuron_llm.runtime.batch.records import OrderedRecordWriter
from neuron_llm.runtime.batch.resume import (
    FinishedRecords,
    JobIdentity,
    check_identity,
    find_finished_records,
    forget_identity,
    write_identity,
)
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.loading import load_engine
from neuron_llm.runtime.generation_defaults import generation_defaults
from neuron_llm.runtime.run_log import RunLogWriter, new_run_log
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.watch.chrome_trace import ChromeTraceWriter
from neuron_llm.scheduler.step_record import StepRecord


def run_batch_job(job: BatchJob, observer: BatchObserver | None = None) -> BatchJobResult:
    """Run every line of a prompts file; a record per line is written in input order.

    Args:
        job: what to run.
        observer: told how it goes.

    Raises:
        RequestError: `job.sampling` is wrong; a line's own fault is its record.
        ArtifactError: the artifact cannot run here, or there is not the memory for it.
        NeuronLLMError: a file cannot be used, or is of another job.
        NoProgressError: requests are left and none can be scheduled; what is complete is written.
    """
    check_type(job, "job", BatchJob)
    observer = observer or BatchObserver()
    SamplingParams.merged(job.sampling, {"max_tokens": None})
    manifest = read_manifest(job.artifact)
    options = BatchOptions(
        job.sampling,
        generation_defaults(job.artifact, manifest),
        job.include_token_ids,
        job.chat_template,
    )
    # A pipe can be read only once.
    if job.prompts.is_file():
        check_unique_ids(job.prompts)
    return _JobRun(job, manifest, options, observer).run()


class _JobRun:
    """A job while it runs: its files, and the engine between them."""

    def __init__(
        self, job: BatchJob, manifest: Manifest, options: BatchOptions, observer: BatchObserver
    ) -> None:
        self._job = job
        self._manifest = manifest
        self._options = options
        self._observer = observer
        self._trace: ChromeTraceWriter | None = None
        self._log: RunLogWriter | None = None

    def run(self) -> BatchJobResult:
        job = self._job
        with ExitStack() as stack:
            reader = PromptReader(stack.enter_context(open_prompts(job.prompts)))
            may_exist = job.existing_output != "refuse"
            stream = stack.enter_context(
                open_output(job.output, prompts=job.prompts, force=may_exist)
            )
            identity = self._identity()
            earlier = self._earlier_records(identity)
            engine = self._load(stack)
            output = job.output if job.output is not None and job.output.is_file() else None
            if output is not None and identity is not None:
                write_identity(output, identity)
            begin_output(stream, num_kept_bytes=earlier.num_bytes)
            lines = islice(reader, earlier.num_records, None)
            writer = OrderedRecordWriter(stream, first_index=earlier.num_records)
            batch = run_batch(engine, lines, writer, self._options, self._observer.on_progress)
            if output is not None:
                forget_identity(output)
        return self._result(engine, reader, earlier, batch)

    def _result(
        self, engine: Engine, reader: PromptReader, earlier: FinishedRecords, batch: BatchResult
    ) -> BatchJobResult:
        is_empty = not earlier.num_records + batch.num_ok + batch.num_failed
        session = engine.runner.session
        moved = session.transfers if isinstance(session, MovesState) else None
        return BatchJobResult(
            earlier=earlier,
            metrics=batch.metrics,
            duration_s=batch.duration_s,
            num_kv_copies=None if moved is None else moved.num_copies,
            kv_copy_bytes=None if moved is None else moved.num_bytes,
            warnings=tuple(self._warnings(reader, batch.metrics, is_empty=is_empty)),
        )

    def _identity(self) -> JobIdentity | None:
        """Return what a job is made of that may go on; its prompts are read through for that.

        None if its records go to stdout, or its prompts can be read only once.
        """
        job = self._job
        if not job.can_go_on:
            return None
        # As they will be read: in JSON a tuple is a list, and every key a text.
        options = json.loads(json.dumps(asdict(self._options)))
        fields, defaults = options.pop("job_fields"), options.pop("generation_fields")
        return JobIdentity(
            artifact_id=self._manifest.artifact_id,
            prompts_sha256=file_sha256(job.prompts),
            options={
                **defaults,
                **fields,
                **options,
                "reproducible": job.engine_options.reproducible,
            },
        )

    def _earlier_records(self, identity: JobIdentity | None) -> FinishedRecords:
        """Return what an earlier run has done of a job that goes on; nothing, if it begins.

        Raises:
            NeuronLLMError: the output is of something else or of another job, or the prompts can
                be read only once.
        """
        job = self._job
        if job.existing_output != "resume" or job.output is None or not job.output.is_file():
            return FinishedRecords()
        if identity is None:
            raise NeuronLLMError(
                f"the prompts file `{job.prompts}` can be read only once, so that no job can go on",
                hint="write the prompts to a file",
            )
        with job.output.open("rb") as output, open_prompts(job.prompts) as prompts:
            lines = iter(PromptReader(prompts))
            earlier = find_finished_records(job.output, output, lines)
            has_more = next(lines, None) is not None
        if earlier.num_records and has_more:
            check_identity(job.output, identity)
        self._observer.on_resumed(earlier.num_records)
        return earlier

    def _load(self, stack: ExitStack) -> Engine:
        """Open the trace and the log, which end with the stack, and load the artifact."""
        job = self._job
        trace = _open_trace(job)
        if trace is not None:
            self._trace = stack.enter_context(trace)
        if job.state_dir is not None:
            log = new_run_log(self._manifest.artifact_id, job.state_dir)
            self._log = stack.enter_context(log)
        self._observer.on_loading()
        artifact = Artifact.open(job.artifact)
        engine = load_engine(
            artifact, job.engine_options, on_step=self._on_step, observer=self._trace
        )
        self._observer.on_loaded(artifact.manifest)
        return engine

    def _on_step(self, step: StepRecord) -> None:
        if self._log is not None:
            self._log.write(step)
        self._observer.on_step(step)

    def _warnings(
        self, reader: PromptReader, metrics: RunMetrics, *, is_empty: bool
    ) -> Iterator[str]:
        if self._log is not None and self._log.warning is not None:
            yield self._log.warning
        if is_empty:
            yield f"no prompts in `{self._job.prompts}`"
        yield from reader.warnings()
        yield from _prefix_caching_warnings(self._manifest, metrics)
        if self._trace is not None and self._trace.failure is not None:
            reason = self._trace.failure.strerror or str(self._trace.failure)
            yield f"the trace `{self._job.trace_out}` is not complete ({reason.lower()})"


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


def _prefix_caching_warnings(manifest: Manifest, metrics: RunMetrics) -> Iterator[str]:
    """Only whole blocks are shared, and a prompt's last token is always computed."""
    settings, longest = manifest.settings, metrics.max_prompt_tokens
    is_shared = settings.enable_prefix_caching and metrics.num_completed > 1
    if is_shared and longest <= settings.block_size:
        yield (
            f"prefix caching could not hit: no prompt (at most {longest} tokens) spans a full block"
            f" of {settings.block_size} tokens and one more; compile with a smaller `block_size`"
        )
