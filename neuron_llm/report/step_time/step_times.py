"""How long the step of each graph takes, as a simulation counts it. Knows no torch."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Protocol

from neuron_llm.errors import NeuronLLMError
from neuron_llm.scheduler.buckets import Bucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

_LEAST_SECONDS = 1e-9
"""Of a step: a clock may not tell one so short from none."""


class StepTimeSource(StrEnum):
    """Where a step's time comes from."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a step takes.

    Attributes:
        seconds: from one step's begin to the next one's, the host's share included; above 0.
        source: how they are known.
    """

    seconds: float
    source: StepTimeSource


class StepTimes(Protocol):
    """Knows what the steps of any graph take, whether or not the graph exists."""

    def step_time(self, bucket: Bucket) -> StepTime:
        """Return what a step of the bucket takes.

        Raises:
            NeuronLLMError: nobody can say.
        """


class MeasuredStepTimes:
    """The median time of each graph in a recorded run, and estimates for graphs that never ran.

    An estimate interpolates along the tokens of prefills; of decodes, along the rows of those with
    equal context first, and then along the context. See `interpolate`.

    Args:
        steps: of a run's log, which says how long each graph ran.
        overhead_s: what the host adds to each step, which the log does not say.
    """

    def __init__(self, steps: Iterable[StepRecord], *, overhead_s: float = 0.0) -> None:
        seconds: defaultdict[Bucket, array[float]] = defaultdict(lambda: array("d"))
        for step in steps:
            seconds[step.bucket].append(step.seconds)
        self._measured = {
            bucket: max(median(times) + overhead_s, _LEAST_SECONDS)
            for bucket, times in seconds.items()
        }
        self._prefills: dict[int, float] = {}
        self._decodes: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for bucket, time in self._measured.items():
            if isinstance(bucket, PrefillBucket):
                self._prefills[bucket.num_tokens] = time
            else:
                self._decodes[bucket.max_context_tokens][bucket.batch_size] = time

    def step_time(self, bucket: Bucket) -> StepTime:
        """Return what a step of the bucket takes.

        Raises:
            NeuronLLMError: the run had no step of this phase at all.
        """
        if bucket in self._measured:
            return StepTime(self._measured[bucket], StepTimeSource.MEASURED)
        if isinstance(bucket, PrefillBucket):
            if not self._prefills:
                raise _no_step("prefill")
            return _estimated(interpolate(self._prefills, bucket.num_tokens))
        if not self._decodes:
            raise _no_step("decode")
        by_context = {
            context: interpolate(by_rows, bucket.batch_size)
            for context, by_rows in self._decodes.items()
        }
        return _estimated(interpolate(by_context, bucket.max_context_tokens))


def _estimated(seconds: float) -> StepTime:
    return StepTime(seconds, StepTimeSource.ESTIMATED)


def _no_step(phase: str) -> NeuronLLMError:
    return NeuronLLMError(
        f"the recorded run has no {phase} step, so that nothing says how long one takes",
        hint="run prompts that generate several tokens each: `neuron-llm run --prompts FILE`",
    )


def interpolate(known: Mapping[int, float], size: int) -> float:
    """Return what a size would take, where some sizes are known to take so much.

    Between two known sizes it lies on the line through both. Outside, it lies on the line through
    the nearest two, as far as larger sizes take no less and time no more than in proportion: with
    10 at 100 and 14 at 200, it is 12 at 150, 8 at 50 and 18 at 300. With a single known size, it is
    the same below and in proportion above.

    Args:
        known: positive values by size, at least one.
        size: at least 1.
    """
    sizes = sorted(known)
    if size in known:
        return known[size]
    index = bisect_left(sizes, size)
    if len(sizes) == 1:
        return known[sizes[0]] * max(size / sizes[0], 1.0)
    left, right = sizes[max(min(index, len(sizes) - 1) - 1, 0) :][:2]
    slope = (known[right] - known[left]) / (right - left)
    value = known[left] + slope * (size - left)
    if index == 0:
        return min(max(value, known[left] * size / left), known[left])
    if index == len(sizes):
        return max(value, known[right])
    return value
