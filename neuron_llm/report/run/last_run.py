"""The last run of an artifact in this directory, as a report needs it. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_llm.report.run.logged_prompts import LoggedPrompts
from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.run.run_log_reader import RunLogReader
from neuron_llm.report.step_time.roofline import DEFAULT_STEP_OVERHEAD_S
from neuron_llm.report.step_time.step_times import MeasuredStepTimes
from neuron_llm.runtime.batch.distribution import Distribution
from neuron_llm.runtime.run_log import STATE_DIR, RunHeader, last_run_path
from neuron_llm.scheduler.buckets import BucketSet
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(frozen=True)
class LastRun:
    """What the log of a run says.

    Attributes:
        header: when it was.
        account: its steps, by graph.
        prompts: its prompts.
        queue_ms: how long each prompt waited from its arrival to the begin of its first step; empty
            in a log of a version that did not note it.
        step_times: of its graphs, with what the host usually adds to a step.
    """

    header: RunHeader
    account: PaddingAccount
    prompts: LoggedPrompts
    queue_ms: Distribution
    step_times: MeasuredStepTimes

    @property
    def has_both_phases(self) -> bool:
        """Whether there were prefills and decodes, so that any graph's time can be estimated."""
        used = [bucket for bucket, counts in self.account.by_bucket.items() if counts.num_uses]
        return len({type(bucket) for bucket in used}) == 2

    def to_json(self) -> dict[str, Any]:
        """Return what is in no other part of a report as JSON keys and values."""
        return {"started_at": self.header.started_at, "queue_ms": self.queue_ms.to_json()}


def read_last_run(
    artifact_id: str, buckets: BucketSet, state_dir: Path = STATE_DIR
) -> LastRun | None:
    """Read the log of an artifact's last run; None if there is none.

    Raises:
        NeuronLLMError: it cannot be used.
    """
    path = last_run_path(artifact_id, state_dir)
    if not path.exists():
        return None
    account, prompts, queue_ms = PaddingAccount(buckets.all), LoggedPrompts(), Distribution()
    with RunLogReader(path, artifact_id, buckets.all) as log:
        times = MeasuredStepTimes(
            _counted(log, account, prompts, queue_ms), overhead_s=DEFAULT_STEP_OVERHEAD_S
        )
        return LastRun(log.header, account, prompts, queue_ms, times)


def _counted(
    log: RunLogReader, account: PaddingAccount, prompts: LoggedPrompts, queue_ms: Distribution
) -> Iterator[StepRecord]:
    """Yield the steps, and add each to all on its way: a log may be longer than memory."""
    for step in log:
        account.add(step)
        prompts.add(step)
        if step.queue_seconds is not None:
            queue_ms.add(step.queue_seconds * 1e3)
        yield step
