"""Reproducible runs: a request's bits, whatever its neighbours, its order, and the cache."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from conftest import Compiled
from engine_streams import StreamRequest, async_copy, random_requests
from tiny_models import random_prompt

from neuron_llm import LLM, SamplingParams
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.backends.protocol import Session
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.outputs import RequestOutput
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket
from neuron_llm.scheduler.step_record import StepRecord


@dataclass
class Bits:
    """What a run gave: each request's result, and the logits that each of its tokens came from."""

    results: dict[str, RequestOutput] = field(default_factory=dict)
    logits: dict[str, list[torch.Tensor]] = field(default_factory=dict)

    def equal(self, other: Bits, request_id: str) -> bool:
        """Whether a request got the same tokens, logits and log probabilities in both runs."""
        mine, others = self.results[request_id], other.results[request_id]
        num_tokens = len(mine.outputs[0].token_ids)
        # A step ahead, one more token may have been sampled before the end was found.
        pairs = zip(self.logits[request_id], other.logits[request_id], strict=False)
        equal_logits = [torch.equal(a, b) for a, b in pairs][:num_tokens]
        return (
            mine.outputs == others.outputs
            and mine.prompt_logprobs == others.prompt_logprobs
            and equal_logits == [True] * num_tokens
        )


class Recorded:
    """An engine whose logits are kept, row by row."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.bits = Bits()
        self._sample = engine.runner.sample
        monkeypatch.setattr(engine.runner, "sample", self._record)

    def _record(self, step: Any, logits: torch.Tensor) -> Any:
        for index, row in enumerate(step.rows):
            if not row.is_partial and not row.request.sampling.is_over:
                self.bits.logits.setdefault(row.req_id, []).append(logits[index].clone())
        return self._sample(step, logits)

    def run(self, requests: Sequence[StreamRequest], every: int = 0, *, cold: bool = False) -> Bits:
        """Run requests, a new one after so many steps; the cache stays as it is or is emptied."""
        if cold:
            assert self.engine.scheduler.reset_prefix_cache()
        self.bits, waiting, step = Bits(), list(requests), 0
        while waiting or self.engine.has_unfinished_requests():
            while waiting and step >= (len(requests) - len(waiting)) * every:
                request = waiting.pop(0)
                self.engine.add_request(request.request_id, request.prompt, request.params)
            for output in self.engine.step():
                if output.result is not None:
                    self.bits.results[output.result.request_id] = output.result
            step += 1
        return self.bits

    def run_alone(self, requests: Sequence[StreamRequest]) -> Bits:
        """Run one request after the other, each with an empty cache."""
        alone = Bits()
        for request in requests:
            bits = self.run([request], cold=True)
            alone.results |= bits.results
            alone.logits |= bits.logits
        return alone


@pytest.fixture(
    scope="module",
    params=["float32", "float32, a step ahead", "bfloat16", "bfloat16, a step ahead"],
)
def llm(
    request: pytest.FixtureRequest,
    llama: Compiled,
    llama_bfloat16: Compiled,
    tmp_path_factory: pytest.TempPathFactory,
) -> LLM:
    artifact = (llama if request.param.startswith("float32") else llama_bfloat16).artifact
    if "ahead" in request.param:
        artifact = async_copy(artifact, tmp_path_factory.mktemp("async") / "tiny")
    return LLM(artifact, reproducible=True)


@pytest.fixture
def recorded(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(llm.engine, monkeypatch)


def arrangements(requests: list[StreamRequest], seed: int) -> Iterator[Callable[[Recorded], Bits]]:
    """Yield ways to run the same requests."""
    strangers = [
        StreamRequest(f"stranger{i}", tuple(random_prompt(5 + 9 * i, seed=i)), r.params, 0, None)
        for i, r in enumerate(random_requests(seed + 1000, 64)[:5])
    ]
    shuffled = random.Random(seed).sample([*requests, *strangers], len(requests) + len(strangers))
    yield lambda recorded: recorded.run(requests, cold=True)
    yield lambda recorded: recorded.run(requests)
    yield lambda recorded: recorded.run(requests[::-1], every=3)
    yield lambda recorded: recorded.run(shuffled, cold=True)
    yield lambda recorded: recorded.run(shuffled, every=1)


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_order_concurrency_and_cache_change_no_bit(
    recorded: Recorded, seed: int
) -> None:
    requests = random_requests(seed, 64)
    alone = recorded.run_alone(requests)
    for arrangement in arrangements(requests, seed):
        bits = arrangement(recorded)
        for request in requests:
            assert bits.equal(alone, request.request_id), request


def greedy(request_id: str, prompt: Sequence[int], **fields: Any) -> StreamRequest:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, **fields)
    return StreamRequest(request_id, tuple(prompt), params, 0, None)


def next_turn(recorded: Recorded) -> tuple[Bits, StreamRequest]:
    """Run a conversation of two turns; return the bits of the second, and its request."""
    first = greedy("first", random_prompt(10, seed=3))
    reply = recorded.run([first], cold=True).results["first"].outputs[0].token_ids
    second = greedy("second", (*first.prompt, *reply, *random_prompt(5, seed=4)))
    return recorded.run([second]), second


def test_a_conversation_goes_on_with_the_bits_of_a_cold_start(recorded: Recorded) -> None:
    """Its next turn begins with the reply, whose KV decode steps have left in the cache."""
    warm, second = next_turn(recorded)
    assert warm.results["second"].num_cached_tokens == 8, "the prompt's full blocks alone"
    assert warm.equal(recorded.run_alone([second]), "second")


def test_a_scored_prompt_leaves_nothing_to_read(recorded: Recorded) -> None:
    """Decode graphs have computed it."""
    prompt = random_prompt(30, seed=5)
    recorded.run([greedy("scored", prompt, prompt_logprobs=1)], cold=True)
    again = greedy("plain", prompt)
    assert recorded.run([again]).results["plain"].num_cached_tokens == 0
    assert recorded.run([again]).results["plain"].num_cached_tokens == 28


def test_only_the_largest_graph_of_each_phase_runs(recorded: Recorded) -> None:
    steps: list[StepRecord] = []
    recorded.engine.on_step = steps.append
    recorded.run(random_requests(3, 64), every=2)
    recorded.engine.on_step = lambda _: None
    largest = recorded.engine.artifact.manifest.buckets.largest
    assert {step.bucket for step in steps} == {*largest.prefill, *largest.decode}
    assert len(largest.prefill) == len(largest.decode) == 1


class Unlike:
    """Graphs of which no two compute the same, which a compiler may make of one model."""

    def __init__(self, session: Session) -> None:
        self.key_caches, self.value_caches = session.key_caches, session.value_caches
        self._session = session
        self._buckets: list[Bucket] = []

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the graph, and move its logits, and for a decode its KV, by something of its own."""
        if bucket not in self._buckets:
            self._buckets.append(bucket)
        logits = self._session.execute(bucket, inputs)
        noise = torch.Generator().manual_seed(self._buckets.index(bucket))
        logits += torch.randn(logits.shape[-1], generator=noise, dtype=logits.dtype)
        if isinstance(bucket, DecodeBucket):
            slots = inputs.slot_mapping[inputs.slot_mapping >= 0].long()
            for cache in (*self.key_caches, *self.value_caches):
                cache.flatten(0, 1)[slots] *= 1.25
        return logits


@pytest.mark.parametrize("reproducible", [True, False])
def test_graphs_that_do_not_agree_are_reproducible_all_the_same(
    llama: Compiled, monkeypatch: pytest.MonkeyPatch, reproducible: bool
) -> None:
    engine = LLM(llama.artifact, reproducible=reproducible).engine
    engine.runner.session = Unlike(engine.runner.session)
    recorded = Recorded(engine, monkeypatch)
    are_equal = []
    for seed in range(3):
        requests = random_requests(seed, 64)
        alone = recorded.run_alone(requests)
        for arrangement in arrangements(requests, seed):
            bits = arrangement(recorded)
            are_equal += [bits.equal(alone, request.request_id) for request in requests]
    assert all(are_equal) == reproducible


@pytest.mark.parametrize("reproducible", [True, False])
def test_what_decode_graphs_left_in_the_cache_is_read_only_where_nothing_is_promised(
    llama: Compiled, monkeypatch: pytest.MonkeyPatch, reproducible: bool
) -> None:
    engine = LLM(llama.artifact, reproducible=reproducible).engine
    engine.runner.session = Unlike(engine.runner.session)
    recorded = Recorded(engine, monkeypatch)
    warm, second = next_turn(recorded)
    assert warm.equal(recorded.run_alone([second]), "second") == reproducible
    plain = greedy("plain", random_prompt(30, seed=5))
    recorded.run([greedy("scored", plain.prompt, prompt_logprobs=1)], cold=True)
    warm = recorded.run([plain])
    assert warm.equal(recorded.run_alone([plain]), "plain") == reproducible
