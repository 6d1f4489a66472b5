"""Reading the log of a run, which may be damaged or of another artifact. Knows no torch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.run_log import SCHEMA_VERSION, RunHeader
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

# Without `queue_seconds`, which is None then as well as in steps that are no request's first.
_OLD_SCHEMA_VERSION = 1
_MAX_COUNT = 2**53
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class RunLogReader(AbstractContextManager["RunLogReader"]):
    """Reads a run's log; iterate over its steps inside the block.

    Args:
        path: from `last_run_path`, an existing file.
        artifact_id: of the artifact that must have run.
        buckets: the graphs that it has.

    Attributes:
        header: of the run.

    Raises:
        NeuronLLMError: the file cannot be read, is damaged, or is of another version or artifact.
    """

    def __init__(self, path: Path, artifact_id: str, buckets: Collection[Bucket]) -> None:
        self._path = path
        self._buckets = frozenset(buckets)
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise self._unusable((error.strerror or str(error)).lower()) from error
        try:
            self.header = self._read_header(artifact_id)
        except BaseException:
            self._file.close()
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[StepRecord]:
        """Yield the steps in order.

        Raises:
            NeuronLLMError: a line is damaged.
        """
        for line_number, line in enumerate(self._file, start=2):
            try:
                step = _read_step(line)
            except _DAMAGED as error:
                raise self._unusable(f"line {line_number} is damaged") from error
            if step.bucket not in self._buckets:
                raise self._unusable(
                    f"line {line_number} is of the graph `{step.bucket.name}`, which the artifact "
                    "does not have"
                )
            yield step

    def _read_header(self, artifact_id: str) -> RunHeader:
        try:
            fields = json.loads(self._file.readline())
            version = fields.pop("schema_version")
            header = RunHeader(**fields) if _is_readable(version) else None
            if header is not None:
                datetime.fromisoformat(header.started_at)
        except _DAMAGED as error:
            raise self._unusable("its first line is damaged") from error
        if header is None:
            raise self._unusable(f"its schema version is `{version!s:.40}`, not `{SCHEMA_VERSION}`")
        if header.artifact_id != artifact_id:
            raise self._unusable(
                f"it is of the artifact `{header.artifact_id!s:.40}`, not `{artifact_id}`"
            )
        return header

    def _unusable(self, reason: str) -> NeuronLLMError:
        return NeuronLLMError(
            f"the log of the last run, `{self._path}`, cannot be used: {reason}",
            hint="delete it, or run again: `neuron-llm run --prompts FILE` writes a new one",
        )


def _is_readable(version: object) -> bool:
    return version in (SCHEMA_VERSION, _OLD_SCHEMA_VERSION) and not isinstance(version, bool)


def _read_step(line: bytes) -> StepRecord:
    """Return the step of a line; any of `_DAMAGED` if it cannot have been one."""
    fields = json.loads(line)
    step = StepRecord(bucket=_read_bucket(fields.pop("bucket")), **fields)
    if step.queue_seconds is None:
        fields.pop("queue_seconds", None)
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"`{name}` is no number")
        if name not in ("seconds", "queue_seconds") and not isinstance(value, int):
            raise TypeError(f"`{name}` is no integer")
        if not 0 <= value <= _MAX_COUNT:  # False for NaN too.
            raise ValueError(f"`{name}` is out of range")
    if not _fits_bucket(step):
        raise ValueError("the step is larger than its bucket")
    return step


def _read_bucket(fields: dict[str, int]) -> Bucket:
    return PrefillBucket(**fields) if "num_tokens" in fields else DecodeBucket(**fields)


def _fits_bucket(step: StepRecord) -> bool:
    bucket = step.bucket
    if isinstance(bucket, PrefillBucket):
        return step.num_tokens <= bucket.num_tokens
    return (
        step.num_seqs <= bucket.batch_size
        and step.num_context_tokens <= step.num_seqs * bucket.max_context_tokens
    )
