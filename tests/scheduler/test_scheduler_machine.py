"""A random walk of hypothesis over one scheduler: add, schedule, finish a step, abort."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scheduler_factory import make_config
from streams import BOTH_CLASSES, Stream, StreamRun

from neuron_llm.scheduler import NeuronScheduler, Request, RequestStatus

VOCAB_SIZE = 12


class SchedulerWalk(RuleBasedStateMachine):
    """Drives the run of a stream by hand; all checks are those of `StreamRun`."""

    scheduler_class: type[NeuronScheduler]

    def __init__(self) -> None:
        super().__init__()
        self.num_added = 0

    @initialize(
        num_blocks=st.integers(17, 40),
        max_num_seqs=st.integers(1, 4),
        kv_admission=st.sampled_from(["reserve", "max_model_len"]),
        max_consecutive_prefills=st.sampled_from([None, 1, 3]),
    )
    def start(self, **limits: Any) -> None:
        config = make_config(**limits)
        self.run_ = StreamRun(Stream(config, VOCAB_SIZE, False), self.scheduler_class)

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=40),
        max_tokens=st.integers(1, 30),
        stop=st.sampled_from([frozenset[int](), frozenset({1})]),
    )
    def add(self, prompt: list[int], max_tokens: int, stop: frozenset[int]) -> None:
        request_id = f"r{self.num_added}"
        self.num_added += 1
        eos = frozenset({0})
        self.run_.add(
            Request(request_id, prompt, max_tokens, eos_token_ids=eos, stop_token_ids=stop)
        )

    @rule()
    def schedule(self) -> None:
        if len(self.run_.in_flight) == self.run_.max_steps_in_flight:
            self.run_.finish_oldest_step()
        output = self.run_.scheduler.schedule()
        self.run_.check_step(output)
        self.run_.in_flight.append(output)

    @precondition(lambda self: self.run_.in_flight)
    @rule()
    def finish_step(self) -> None:
        self.run_.finish_oldest_step()

    @precondition(lambda self: self.run_.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(list(self.run_.live)))
        self.run_.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self.run_.live.pop(request_id).is_aborted = True

    @invariant()
    def blocks_agree(self) -> None:
        if hasattr(self, "run_"):
            self.run_.scheduler.kv_cache_manager.check_integrity()

    def teardown(self) -> None:
        if hasattr(self, "run_"):
            self.run_.run()


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_no_walk_breaks_an_invariant(scheduler_class: type[NeuronScheduler]) -> None:
    walk = type("Walk", (SchedulerWalk,), {"scheduler_class": scheduler_class})
    run_state_machine_as_test(
        walk,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
