"""The function that is compiled for Neuron, and the CPU's plain graph, answer as eager does."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from families import FAMILIES, SHORTEST_PROMPTS
from tiny_families import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    PREFILL,
    TARGET,
    FunctionalSession,
    InPlaceSession,
    generate,
    random_model,
)
from tiny_models import random_prompt, reference_tokens

from neuron_llm.backends.graph.inputs import StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.scheduler.buckets import DecodeBucket, PrefillBucket

PROMPTS = [random_prompt(length, seed=length) for length in (3, 9, 17, 41)]
NUM_TOKENS = 6
IN_SEGMENTS = NeuronTarget("trn2", 2, kv_segment_size_buckets=(12,))


def prompts_of(family: str) -> list[list[int]]:
    return [prompt for prompt in PROMPTS if len(prompt) >= SHORTEST_PROMPTS.get(family, 1)]


@cache
def eager_tokens(family: str) -> list[list[int]]:
    model = random_model(family, "eager")
    tokens = [reference_tokens(model, prompt, NUM_TOKENS) for prompt in prompts_of(family)]
    assert len({token for row in tokens for token in row}) > 2, "a constant would agree with it"
    return tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_of_the_plain_graph_are_those_of_eager_hugging_face(family: str) -> None:
    session = InPlaceSession(family)
    assert generate(session, prompts_of(family), NUM_TOKENS) == eager_tokens(family)


@pytest.mark.parametrize(
    ("target", "chunk"), [(TARGET, None), (IN_SEGMENTS, 5)], ids=["whole", "segments and chunks"]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_eager_hugging_face(
    family: str, target: NeuronTarget, chunk: int | None
) -> None:
    tokens = generate(FunctionalSession(family, target), prompts_of(family), NUM_TOKENS, chunk)
    assert tokens == eager_tokens(family)


@pytest.mark.parametrize("family", ["llama", "gpt-oss"])
def test_a_graph_can_give_the_most_likely_token_instead_of_logits(family: str) -> None:
    target = NeuronTarget("trn2", 2, samples_greedily=True)
    assert generate(FunctionalSession(family, target), PROMPTS, NUM_TOKENS) == eager_tokens(family)


@pytest.mark.parametrize("target", [TARGET, IN_SEGMENTS], ids=["whole", "segments"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt-oss"])
def test_padding_and_stale_rows_change_no_bit(family: str, target: NeuronTarget) -> None:
    results = []
    for poison, padding_id in ((torch.nan, 0), (7.0, 3), (-torch.inf, 200)):
        session = FunctionalSession(family, target)
        session.kv_caches = [torch.full_like(cache, poison) for cache in session.kv_caches]
        step = StepTokens(PROMPTS[1], 0, [5, 2, 9])
        inputs = prefill_inputs(PREFILL, step, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        inputs.input_ids[len(PROMPTS[1]) :] = padding_id
        first = session.execute(PREFILL, inputs)
        row = StepTokens([3], len(PROMPTS[1]), [5, 2, 9])
        decode = DecodeBucket(4, MAX_MODEL_LEN)
        inputs = decode_inputs(decode, [row], block_size=BLOCK_SIZE)
        inputs.input_ids[1:] = padding_id
        results.append((first, session.execute(decode, inputs)[:1], session.kv_caches, poison))
    for first, second, _, _ in results:
        assert torch.equal(first, results[0][0])
        assert torch.equal(second, results[0][1])


def test_only_the_tokens_own_slots_are_replaced() -> None:
    session = FunctionalSession("llama")
    before = [torch.rand_like(cache) for cache in session.kv_caches]
    session.kv_caches = before
    step = StepTokens(PROMPTS[0], 2, [7, 3])
    inputs = prefill_inputs(PREFILL, step, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
    session.execute(PREFILL, inputs)
    for old, new in zip(before, session.kv_caches, strict=True):
        changed = (old != new).any(-1).any(-1).nonzero().tolist()
        assert changed == [[3, 0], [7, 2], [7, 3]]


def test_a_prefill_reads_the_smallest_segment_that_is_as_long_as_its_chunk() -> None:
    target = NeuronTarget("trn2", 2, kv_segment_size_buckets=(512, 2048))
    sizes = [target.segment_tokens(PrefillBucket(n)) for n in (128, 512, 513, 4096)]
    assert sizes == [512, 512, 2048, 2048]
    assert target.segment_tokens(DecodeBucket(4, 8192)) is None
    assert TARGET.segment_tokens(PrefillBucket(128)) is None
