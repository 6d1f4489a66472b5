"""What a simulation has to know beside the trace."""

from __future__ import annotations

import pytest
from simulation_factory import make_trace

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.workload.workload import Workload, median_output_tokens


def test_an_unknown_output_must_be_assumed() -> None:
    trace = make_trace((0.0, 8, None), (0.0, 8, 2), (0.0, 8, None))
    with pytest.raises(NeuronLLMError, match="2 of 3 requests") as caught:
        Workload(trace)
    assert caught.value.hint is not None
    workload = Workload(trace, assumed_output_tokens=7)
    assert workload.num_assumed == 2
    assert [workload.output_tokens(request) for request in trace.requests] == [7, 2, 7]


def test_a_request_asks_for_no_less_than_it_generates() -> None:
    trace = make_trace((0.0, 8, 3), (0.0, 8, 20), (0.0, 8, 0))
    assert [Workload(trace).asked_tokens(r) for r in trace.requests] == [3, 20, 1]
    assert [Workload(trace, max_tokens=9).asked_tokens(r) for r in trace.requests] == [9, 20, 9]


def test_the_mean_context_is_that_of_the_decodes() -> None:
    # 11 and 12; none; 101.
    assert Workload(make_trace((0.0, 10, 3), (0.0, 50, 1))).mean_context_tokens == 12
    assert Workload(make_trace((0.0, 10, 3), (0.0, 100, 2))).mean_context_tokens == 41
    assert Workload(make_trace((0.0, 10, 1))).mean_context_tokens is None


def test_the_median_is_an_output_that_occurs() -> None:
    outputs = [(0.0, 8, output) for output in (4, None, 9, 2, 30)]
    assert median_output_tokens(make_trace(*outputs)) == 4
    assert median_output_tokens(make_trace((0.0, 8, 0))) == 1
    assert median_output_tokens(make_trace((0.0, 8, None))) is None
