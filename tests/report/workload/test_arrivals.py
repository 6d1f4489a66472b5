"""Requests on their way into the scheduler."""

from __future__ import annotations

from dataclasses import replace

from simulation_factory import make_candidate, make_trace

from neuron_llm.report.workload.arrivals import Arrivals
from neuron_llm.report.workload.trace import Trace
from neuron_llm.report.workload.workload import Workload
from neuron_llm.scheduler import NeuronScheduler


def make_arrivals(trace: Trace) -> tuple[Arrivals, NeuronScheduler]:
    config = make_candidate().scheduler
    return Arrivals(Workload(trace), config), NeuronScheduler(config)


def test_nobody_comes_before_the_time() -> None:
    arrivals, scheduler = make_arrivals(make_trace((1.0, 8, 1), (2.0, 8, 1)))
    assert arrivals.queue(scheduler, 0.9) == []
    assert arrivals.next_arrival_s == 1.0
    (live,) = arrivals.queue(scheduler, 1.0)
    assert (live.traced.line, live.request.arrival_time) == (2, 1.0)
    assert arrivals.next_arrival_s == 2.0


def test_the_scheduler_has_no_more_than_it_looks_at() -> None:
    arrivals, scheduler = make_arrivals(make_trace(*[(0.0, 8, 1)] * 5))
    assert len(arrivals.queue(scheduler, 0.0)) == 2
    assert (len(scheduler.waiting), arrivals.num_outside, arrivals.next_arrival_s) == (2, 3, None)
    scheduler.schedule()
    (live,) = arrivals.queue(scheduler, 0.0)
    assert live.traced.line == 4
    assert arrivals.num_outside == 2


def test_requests_of_one_line_are_told_apart() -> None:
    trace = make_trace((0.0, 8, 1))
    arrivals, scheduler = make_arrivals(replace(trace, requests=trace.requests * 2))
    first, second = arrivals.queue(scheduler, 0.0)
    assert first.traced.line == second.traced.line
    assert first.request.request_id != second.request.request_id


def test_requests_that_can_never_run_do_not_come() -> None:
    arrivals, scheduler = make_arrivals(make_trace((0.0, 64, 1), (0.0, 63, 1)))
    assert [live.traced.line for live in arrivals.queue(scheduler, 0.0)] == [3]
    (refused,) = arrivals.refused
    assert refused.to_json() == {
        "line": 2,
        "prompt_tokens": 64,
        "code": "prompt_too_long",
        "reason": "the prompt has 64 tokens and `max_model_len` 64 leaves room for 63",
    }
