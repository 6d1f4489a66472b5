"""Faults of padding, met in the compiled graphs themselves: logits, positions, poisoned slots."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import Compiled
from tiny_models import load_reference, random_prompt

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.graph.inputs import GraphInputs, StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.protocol import Session
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket

BLOCK_SIZE, MAX_MODEL_LEN = 4, 64


@pytest.fixture(scope="module")
def session(llama: Compiled) -> Session:
    return Artifact.open(llama.artifact).load()


@pytest.fixture(scope="module")
def reference(llama: Compiled) -> Any:
    return load_reference(llama.model)


def reference_logits(reference: Any, tokens: list[int]) -> torch.Tensor:
    """Return the logits behind the last token, `[vocab_size]`."""
    with torch.inference_mode():
        logits: torch.Tensor = reference(torch.tensor([tokens])).logits[0, -1]
    return logits


def assert_same_logits(logits: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-4)
    assert logits.argmax() == expected.argmax()


def poison(session: Session) -> None:
    """Fill every block, the null block too, with what must not be read."""
    for cache in (*session.key_caches, *session.value_caches):
        cache.fill_(math.nan)


def prefill(
    session: Session, num_tokens: int, chunk: list[int], computed: int = 0, first_block: int = 1
) -> torch.Tensor:
    """Run a chunk in the bucket of `num_tokens`; the request's blocks follow each other."""
    blocks = list(range(first_block, first_block + 1 + (computed + len(chunk) - 1) // BLOCK_SIZE))
    bucket = PrefillBucket(num_tokens)
    inputs = prefill_inputs(
        bucket,
        StepTokens(chunk, computed, blocks),
        max_model_len=MAX_MODEL_LEN,
        block_size=BLOCK_SIZE,
    )
    return session.execute(bucket, inputs)[0]


@pytest.mark.parametrize("num_tokens", [8, 16])
def test_every_length_in_every_bucket_gives_the_reference_logits(
    session: Session, reference: Any, num_tokens: int
) -> None:
    """The fault: on a padded prefill the logits are not those of the last real token."""
    for length in range(1, num_tokens + 1):
        poison(session)
        prompt = random_prompt(length, seed=length)
        logits = prefill(session, num_tokens, prompt)
        assert_same_logits(logits, reference_logits(reference, prompt))


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_rows_of_unequal_length_keep_to_their_own_index(
    session: Session, reference: Any, batch_size: int
) -> None:
    """The fault: offsets of a batch that add up real lengths where rows are padded."""
    prompts = [random_prompt(n, seed=n) for n in (3, 8, 1, 13)[:batch_size]]
    poison(session)
    for row, prompt in enumerate(prompts):
        prefill(session, 16, prompt, first_block=1 + 5 * row)
    bucket = DecodeBucket(batch_size, MAX_MODEL_LEN)
    for num_rows in range(1, batch_size + 1):
        rows = [
            StepTokens([100 + row], len(prompt), list(range(1 + 5 * row, 6 + 5 * row)))
            for row, prompt in enumerate(prompts[:num_rows])
        ]
        logits = session.execute(bucket, decode_inputs(bucket, rows, block_size=BLOCK_SIZE))
        for row, prompt in enumerate(prompts[:num_rows]):
            expected = reference_logits(reference, [*prompt, 100 + row])
            assert_same_logits(logits[row], expected)


def padded_step(bucket: Bucket) -> tuple[GraphInputs, int, int]:
    """Return inputs that leave room in the bucket, their real tokens and their real rows."""
    if isinstance(bucket, PrefillBucket):
        chunk = StepTokens(random_prompt(5, seed=1), 0, [3, 7])
        inputs = prefill_inputs(bucket, chunk, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        return inputs, 5, 1
    # At position 0, so that nothing has to be in the cache.
    num_rows = max(1, bucket.batch_size - 1)
    rows = [StepTokens([9 + row], 0, [3 + row]) for row in range(num_rows)]
    return decode_inputs(bucket, rows, block_size=BLOCK_SIZE), num_rows, num_rows


def test_neither_the_pad_token_nor_what_stands_in_pad_slots_changes_a_bit(
    llama: Compiled, session: Session
) -> None:
    """The fault: padding on the right leaks into a causal model, or turns it into NaN."""
    for graph in Artifact.open(llama.artifact).manifest.graphs:
        inputs, num_tokens, num_rows = padded_step(graph.bucket)
        outputs = []
        for pad_token_id in range(6):
            poison(session)
            ids = inputs.input_ids.clone()
            ids[num_tokens:] = pad_token_id
            logits = session.execute(graph.bucket, replace(inputs, input_ids=ids))
            outputs.append(logits[:num_rows].clone())
            # Nothing but the real tokens' slots has been written.
            for cache in (*session.key_caches, *session.value_caches):
                written = cache.flatten(2).isnan().logical_not().any(-1)
                assert int(written.sum()) == num_tokens, graph.name
        for cache in (*session.key_caches, *session.value_caches):
            cache.fill_(0)
        outputs.append(session.execute(graph.bucket, inputs)[:num_rows])
        assert outputs[0].isfinite().all(), graph.name
        assert all(torch.equal(outputs[0], other) for other in outputs[1:]), graph.name


@pytest.mark.parametrize("chunks", [[16], [8, 8], [8, 4, 4], [5, 11], [1] * 16, [13, 2, 1]])
def test_a_prompt_in_chunks_gives_the_logits_of_the_whole(
    session: Session, reference: Any, chunks: list[int]
) -> None:
    """The fault: chunked and whole prefill differ."""
    poison(session)
    prompt = random_prompt(16, seed=16)
    computed = 0
    for length in chunks:
        num_tokens = 8 if length <= 8 else 16
        chunk = prompt[computed : computed + length]
        logits = prefill(session, num_tokens, chunk, computed)
        computed += length
        assert_same_logits(logits, reference_logits(reference, prompt[:computed]))
