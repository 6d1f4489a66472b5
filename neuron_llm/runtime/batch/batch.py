"""A batch job: lines of a prompts file through the engine, a record per line in input order.

One line's fault is that line's record; the others are not touched. Memory does not depend on the
number of lines: few requests are in the engine at a time, and few records wait for an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.batch.metrics import RunMetrics
from neuron_llm.runtime.batch.observer import BatchProgress
from neuron_llm.runtime.batch.openai_logprobs import (
    LogprobsForm,
    chat_logprobs,
    completion_logprobs,
)
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptId, PromptLine
from neuron_llm.runtime.batch.records import OrderedRecordWriter, OutputRecord
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.outputs import RequestOutput
from neuron_llm.runtime.sampling.sampling_params import SamplingParams

MAX_HELD_RECORDS = 4096
"""So many finished records may wait for an earlier one before no new line is started."""

_QUEUE_FACTOR = 2
"""Completions in the engine per slot: whenever one ends, the next is waiting already."""


@dataclass(frozen=True)
class BatchOptions:
    """What holds for every line of a job.

    Attributes:
        job_fields: sampling fields of the job; a line's own win over them.
        generation_fields: sampling fields from the model's `generation_config.json`, the weakest.
        include_token_ids: write `token_ids` into the records.
        chat_template: a Jinja template that replaces the model's, for `messages`.
    """

    job_fields: Mapping[str, Any]
    generation_fields: Mapping[str, Any]
    include_token_ids: bool = False
    chat_template: str | None = None


@dataclass(frozen=True)
class BatchResult:
    """What a job came to.

    Attributes:
        num_ok: lines with a result.
        num_failed: lines with an error.
        metrics: latencies and throughput of the lines with a result.
        duration_s: wall time of the job, without loading.
    """

    num_ok: int
    num_failed: int
    metrics: RunMetrics
    duration_s: float


@dataclass(frozen=True)
class _Line:
    id: PromptId
    index: int
    n: int
    logprobs_form: LogprobsForm


class _Job:
    """A job while it runs."""

    def __init__(
        self,
        engine: Engine,
        writer: OrderedRecordWriter,
        options: BatchOptions,
        on_progress: Callable[[BatchProgress], None],
    ) -> None:
        self.engine = engine
        self.writer = writer
        self.options = options
        self.on_progress = on_progress
        self.metrics = RunMetrics()
        self.max_completions = _QUEUE_FACTOR * engine.scheduler.max_num_seqs
        self.started: dict[str, _Line] = {}

    def run(self, lines: Iterator[PromptLine | BadLine]) -> None:
        """Run every line; the engine is kept full as long as there are lines."""
        is_drained = False
        while not is_drained or self.engine.has_unfinished_requests():
            while not is_drained and self._has_room():
                line = next(lines, None)
                is_drained = line is None
                if line is not None:
                    self._start(line)
            for output in self.engine.step() if self.engine.has_unfinished_requests() else ():
                if output.result is not None:
                    self._finish(output.result)

    def abort(self) -> None:
        """End what is running; records that are complete are written."""
        self.engine.abort_requests(list(self.started))
        self.writer.write_held()

    def _has_room(self) -> bool:
        num_completions = sum(line.n for line in self.started.values())
        return num_completions < self.max_completions and self.writer.num_held < MAX_HELD_RECORDS

    def _start(self, line: PromptLine | BadLine) -> None:
        if isinstance(line, BadLine):
            self._fail(OutputRecord.of_bad_line(line))
            return
        # The line's own id may be anyone's; inside, a line is known by its index.
        request_id = str(line.index)
        try:
            params = SamplingParams.merged(
                line.sampling,
                self.options.job_fields,
                self.options.generation_fields,
                _default_fields(line),
            )
            self.engine.add_request(request_id, self._encode(line), params)
        except RequestError as error:
            message = f"line {line.line_number}: {error.message}"
            self._fail(OutputRecord.failed(line.id, line.index, error.code, message))
            return
        self.started[request_id] = _Line(line.id, line.index, params.n, _form_of(line, params))

    def _encode(self, line: PromptLine) -> list[int]:
        if line.messages is not None:
            return self.engine.tokenizer.encode_messages(
                line.messages, chat_template=self.options.chat_template
            )
        if line.prompt is not None:
            return self.engine.tokenizer.encode_prompt(line.prompt)
        assert line.prompt_token_ids is not None
        return line.prompt_token_ids

    def _finish(self, output: RequestOutput) -> None:
        line = self.started.pop(output.request_id)
        record = OutputRecord.of_output(
            line.id,
            line.index,
            output,
            with_token_ids=self.options.include_token_ids,
            logprobs_form=line.logprobs_form,
        )
        if record.error is not None:
            self._fail(record)
            return
        self.metrics.add(
            *(replace(output.times, tokens=one.token_times) for one in output.outputs),
            num_prompt_tokens=len(output.prompt_token_ids),
            num_cached_tokens=output.num_cached_tokens,
        )
        self._write(record)

    def _fail(self, record: OutputRecord) -> None:
        self.metrics.add_failure()
        self._write(record)

    def _write(self, record: OutputRecord) -> None:
        self.writer.write(record)
        num_done = self.metrics.num_completed + self.metrics.num_failed
        self.on_progress(
            BatchProgress(num_done, self.metrics.num_failed, self.metrics.num_output_tokens)
        )


def _default_fields(line: PromptLine) -> dict[str, Any]:
    """A reply to messages may fill the context, as in a chat; a prompt gets vLLM's default."""
    return {"max_tokens": None} if line.messages is not None else {}


def _form_of(line: PromptLine, params: SamplingParams) -> LogprobsForm:
    if line.messages is None or params.logprobs is None:
        return completion_logprobs
    return partial(chat_logprobs, num_top=params.logprobs)


def run_batch(
    engine: Engine,
    lines: Iterable[PromptLine | BadLine],
    writer: OrderedRecordWriter,
    options: BatchOptions,
    on_progress: Callable[[BatchProgress], None],
) -> BatchResult:
    """Run every line of a job.

    Args:
        engine: with no other requests in it.
        lines: read as they are needed.
        writer: gets one record per line.
        options: what holds for every line.
        on_progress: told after every record.

    Raises:
        NoProgressError: requests are left and none can be scheduled; what is complete is written.
    """
    job = _Job(engine, writer, options, on_progress)
    started = time.perf_counter()
    try:
        job.run(iter(lines))
    finally:
        job.abort()
    return BatchResult(
        num_ok=job.metrics.num_completed,
        num_failed=job.metrics.num_failed,
        metrics=job.metrics,
        duration_s=time.perf_counter() - started,
    )
