"""A step that fails leaves everything as it was, wherever it fails, and the next one goes on."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from streams import BOTH_CLASSES, StreamRun, random_stream

from neuron_llm.scheduler import NeuronScheduler, SchedulerOutput

NUM_STREAMS = 80


class BaseFailedError(Exception):
    """What the scheduler underneath raises."""


def everything(scheduler: NeuronScheduler) -> tuple[Any, ...]:
    """Return what a step can change, and what is hidden while it is scheduled."""
    return (
        list(scheduler.running),
        list(scheduler.waiting),
        list(scheduler.holdback_queue),
        scheduler.max_num_running_reqs,
        scheduler.max_num_scheduled_tokens,
        scheduler.state,
        scheduler.total_scheduled_tokens,
        scheduler.total_padding_tokens,
        scheduler.kv_cache_manager.num_free_blocks,
        {r.request_id: r.num_computed_tokens for r in scheduler.requests.values()},
    )


def failing(scheduler_class: type[NeuronScheduler], rng: random.Random) -> type[NeuronScheduler]:
    """Return a scheduler whose base fails now and then; whoever asks again is served."""

    class Failing(scheduler_class):  # type: ignore[misc,valid-type]
        def schedule(self) -> SchedulerOutput:
            while True:
                before = everything(self)
                try:
                    output: SchedulerOutput = super().schedule()
                except BaseFailedError:
                    assert everything(self) == before
                else:
                    return output

        def _call_base_schedule(self) -> SchedulerOutput:
            if rng.random() < 0.4:
                raise BaseFailedError
            output: SchedulerOutput = super()._call_base_schedule()
            return output

    return Failing


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_a_stream_whose_steps_fail_now_and_then_ends_like_any_other(
    scheduler_class: type[NeuronScheduler],
) -> None:
    for seed in range(NUM_STREAMS):
        unreliable = failing(scheduler_class, random.Random(seed))
        StreamRun(random_stream(seed), unreliable).run()


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_a_scheduler_that_does_not_restore_is_found(
    scheduler_class: type[NeuronScheduler],
) -> None:
    class RestoresOnSuccessOnly(scheduler_class):  # type: ignore[misc,valid-type]
        def _restore_waiting(self) -> None:
            if sys.exception() is None:
                super()._restore_waiting()

    def is_found(seed: int) -> bool:
        unreliable = failing(RestoresOnSuccessOnly, random.Random(seed))
        try:
            StreamRun(random_stream(seed), unreliable).run()
        except AssertionError:
            return True
        return False

    assert any(map(is_found, range(30)))
