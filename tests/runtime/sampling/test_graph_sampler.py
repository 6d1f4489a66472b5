"""Tokens that graphs have chosen: taken as they are, and refused where they do not exist."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scheduler_factory import make_neuron, make_request

from neuron_llm import SamplingParams
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.step import SampledStep
from neuron_llm.runtime.sampling.graph_sampler import GraphSampler, InvalidTokenError
from neuron_llm.scheduler import BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.buckets import Bucket

VOCAB_SIZE = 100
GREEDY = SamplingParams(temperature=0)


class TokenSession:
    """Gives what it is told to, and notes the first rows of what it was asked."""

    def __init__(self) -> None:
        self.results: list[list[int]] = []
        self.input_ids: list[list[int]] = []

    def execute(self, _: Bucket, inputs: GraphInputs) -> torch.Tensor:
        self.input_ids.append(inputs.input_ids.tolist())
        return torch.tensor(self.results.pop(0), dtype=torch.int32)


class Runner:
    """A scheduler and a runner over graphs whose tokens a test decides."""

    def __init__(self) -> None:
        sizes = {"max_model_len": 64, "block_size": 4}
        self.scheduler = make_neuron(
            max_num_seqs=4,
            max_num_batched_tokens=8,
            num_blocks=65,
            num_batched_tokens_buckets=(8,),
            **sizes,
        )
        self.session = TokenSession()
        session: Any = self.session
        buckets = BucketSet(prefill=(PrefillBucket(8),), decode=(DecodeBucket(4, 64),))
        self.runner = ModelRunner(session, buckets, GraphSampler((), VOCAB_SIZE), **sizes)

    def add(self, request_id: str, prompt: range) -> None:
        self.scheduler.add_request(make_request(request_id, prompt=prompt, max_tokens=9))
        self.runner.add_sampling(request_id, self.runner.sampler.new_state(request_id, GREEDY))

    def step(self, *result: int, ended: str | None = None) -> SampledStep:
        """Run a step whose graph gives `result`; a request may end while it runs."""
        self.session.results.append(list(result))
        output = self.scheduler.schedule()
        prepared = self.runner.prepare(output)
        assert prepared is not None
        (call,) = prepared.calls
        given = self.runner.run(prepared, call)
        if ended is not None:
            self.runner.remove_sampling(ended)
        sampled = self.runner.sample(prepared, given)
        self.scheduler.update_from_output(output, sampled.output)
        return sampled


def test_a_token_goes_from_the_graph_into_the_next_inputs_as_it_is() -> None:
    run = Runner()
    run.add("a", range(3))
    run.add("b", range(10, 15))
    assert run.step(42).output.sampled_token_ids == [[42]]
    assert run.step(0).output.sampled_token_ids == [[0]]
    sampled = run.step(99, 7, -5, 1_000_000)
    assert sampled.output.req_ids == ["a", "b"]
    assert sampled.output.sampled_token_ids == [[99], [7]]
    assert not sampled.failures and not sampled.logprobs
    run.step(1, 2, 0, 0)
    assert run.session.input_ids[2:] == [[42, 0, 0, 0], [99, 7, 0, 0]]


def test_the_token_of_a_chunk_that_is_not_the_last_is_not_looked_at() -> None:
    run = Runner()
    run.add("a", range(11))
    chunk = run.step(-1)
    assert chunk.output.sampled_token_ids == [[]] and not chunk.failures
    assert run.step(5).output.sampled_token_ids == [[5]]


def test_a_request_that_ended_while_the_step_ran_gets_nothing() -> None:
    run = Runner()
    run.add("a", range(3))
    run.add("b", range(10, 15))
    run.step(1)
    run.step(2)
    sampled = run.step(-9, 4, 0, 0, ended="a")
    assert sampled.output.sampled_token_ids == [[], [4]] and not sampled.failures


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 2**31 - 1])
def test_a_token_that_does_not_exist_fails_its_request_alone(token_id: int) -> None:
    run = Runner()
    run.add("a", range(3))
    run.add("b", range(10, 15))
    run.step(1)
    run.step(2)
    sampled = run.step(3, token_id, 0, 0)
    assert sampled.output.sampled_token_ids == [[3], []]
    (failure,) = sampled.failures
    assert failure.row.req_id == "b"
    message = f"the graph gave `b` token {token_id}, outside the vocabulary (0 to 99)"
    assert failure.error.message == message
    assert "`--no-verify`" in (failure.error.hint or "")


def test_no_state_changes_when_a_token_is_refused() -> None:
    sampler = GraphSampler((), VOCAB_SIZE)
    states = [sampler.new_state(name, GREEDY) for name in "abc"]
    with pytest.raises(InvalidTokenError) as caught:
        sampler.sample(torch.tensor([5, 200, -3, 9], dtype=torch.int32), states)
    assert caught.value.request_ids == ("b", "c")
    assert [state.output_token_ids for state in states] == [[], [], []]
    assert sampler.sample(torch.tensor([5], dtype=torch.int32), states[:1]) == [5]
    assert states[0].output_token_ids == [5]
