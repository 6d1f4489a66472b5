"""Blocks are found before they are written, and yet nobody reads one before it is."""

from __future__ import annotations

import pytest
from judge import JudgeWorker
from scheduler_factory import add_requests, make_config, make_request
from streams import BOTH_CLASSES, StreamRun, random_stream

from neuron_llm.scheduler import (
    AsyncScheduler,
    NeuronScheduler,
    Scheduler,
    SchedulerOutput,
)


class StrictWorker(JudgeWorker):
    """Demands that what a step reads was written by an earlier one: its rows run at once."""

    def _check_batch(self, output: SchedulerOutput, starts: dict[str, int]) -> None:
        if output.num_scheduled_tokens_padded is not None:
            super()._check_batch(output, starts)
        for req_id, start in starts.items():
            self._check_slots(self.known[req_id], start)


class StrictRun(StreamRun):
    def __init__(self, seed: int, scheduler_class: type[NeuronScheduler]) -> None:
        stream = random_stream(seed, enable_prefix_caching=True)
        super().__init__(stream, scheduler_class)
        self.worker = StrictWorker(stream.config, stream.vocab_size)
        self.num_hits = 0

    def check_step(self, output: SchedulerOutput) -> None:
        super().check_step(output)
        self.num_hits += sum(new.num_computed_tokens for new in output.scheduled_new_reqs)


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_every_hit_was_written_by_an_earlier_step(scheduler_class: type[NeuronScheduler]) -> None:
    num_hits = 0
    for seed in range(100):
        run = StrictRun(seed, scheduler_class)
        run.run()
        num_hits += run.num_hits
    assert num_hits > 1000


@pytest.mark.parametrize("scheduler_class", [Scheduler, AsyncScheduler])
def test_two_prefills_in_one_step_would_read_what_is_not_written(
    scheduler_class: type[Scheduler],
) -> None:
    config = make_config(max_num_batched_tokens=64)
    scheduler, worker = scheduler_class(config), StrictWorker(config, 50)
    prompt = list(range(20))
    add_requests(scheduler, make_request("a", prompt=prompt), make_request("b", prompt=prompt))
    with pytest.raises(AssertionError, match="wrong KV slot"):
        worker.execute(scheduler.schedule())
