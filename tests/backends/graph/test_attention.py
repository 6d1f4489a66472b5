"""Paged attention against a plain computation, and padding that must not reach a result."""

from __future__ import annotations

import math

import pytest
import torch

from neuron_llm.backends.graph.attention import AttentionContext, paged_attention
from neuron_llm.backends.graph.inputs import GraphInputs, StepTokens, decode_inputs, prefill_inputs
from neuron_llm.scheduler import DecodeBucket, PrefillBucket

NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM, GROUP = 12, 4, 2, 8, 3
MAX_MODEL_LEN = 32
NUM_HEADS = NUM_KV_HEADS * GROUP


class Layer(torch.nn.Module):
    layer_idx = 0


class Cache:
    """A paged cache in which everything that was never written is NaN."""

    def __init__(self) -> None:
        shape = (NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)
        self.keys = torch.full(shape, math.nan)
        self.values = torch.full(shape, math.nan)

    def fill(self, block_ids: list[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write `[num_tokens, num_kv_heads, head_dim]` as the tokens of one request."""
        for position in range(len(keys)):
            block, offset = block_ids[position // BLOCK_SIZE], position % BLOCK_SIZE
            self.keys[block, offset] = keys[position]
            self.values[block, offset] = values[position]


def attend_paged(
    inputs: GraphInputs,
    cache: Cache,
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    **options: object,
) -> torch.Tensor:
    """Call the attention of one layer; tensors are `[num_tokens, heads, head_dim]`."""
    context = AttentionContext(
        [cache.keys],
        [cache.values],
        positions=inputs.positions,
        slot_mapping=inputs.slot_mapping,
        block_tables=inputs.block_tables,
        context_lens=inputs.context_lens,
    )
    query, key, value = (t.transpose(0, 1)[None] for t in qkv)
    output, _ = paged_attention(
        Layer(),
        query,
        key,
        value,
        None,
        HEAD_DIM**-0.5,
        attention_context=context,
        **options,  # type: ignore[arg-type]
    )
    return output[0]


def attend_plainly(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """One query, `[num_heads, head_dim]`, over all given keys, head by head in float64."""
    if sliding_window is not None:
        keys, values = keys[-sliding_window:], values[-sliding_window:]
    rows = []
    for head in range(NUM_HEADS):
        k, v = keys[:, head // GROUP].double(), values[:, head // GROUP].double()
        scores = k @ query[head].double() * HEAD_DIM**-0.5
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if s_aux is not None:
            scores = torch.cat([scores, s_aux[head].double()[None]])
        weights = torch.softmax(scores, 0)[: len(k)]
        rows.append(weights @ v)
    return torch.stack(rows).float()


def random_qkv(num_tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.randn(num_tokens, NUM_HEADS, HEAD_DIM),
        torch.randn(num_tokens, NUM_KV_HEADS, HEAD_DIM),
        torch.randn(num_tokens, NUM_KV_HEADS, HEAD_DIM),
    )


VARIANTS = [
    {},
    {"sliding_window": 3},
    {"softcap": 2.0},
    {"s_aux": torch.linspace(-1, 1, NUM_HEADS)},
    {"sliding_window": 5, "s_aux": torch.zeros(NUM_HEADS)},
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("num_computed", [0, 3, 4, 5])
@pytest.mark.parametrize("num_tokens", [1, 7, 8])
def test_prefill_chunk_equals_plain_attention(
    options: dict[str, object], num_computed: int, num_tokens: int
) -> None:
    torch.manual_seed(num_computed * 10 + num_tokens)
    block_ids = [7, 3, 9, 1]
    cache = Cache()
    old_keys, old_values = random_qkv(num_computed)[1:]
    cache.fill(block_ids, old_keys, old_values)
    query, key, value = random_qkv(8)
    chunk = StepTokens([0] * num_tokens, num_computed, block_ids)
    inputs = prefill_inputs(
        PrefillBucket(8), chunk, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE
    )
    key[num_tokens:] = value[num_tokens:] = math.nan
    output = attend_paged(inputs, cache, (query, key, value), **options)
    keys = torch.cat([old_keys, key[:num_tokens]])
    values = torch.cat([old_values, value[:num_tokens]])
    for i in range(num_tokens):
        end = num_computed + i + 1
        expected = attend_plainly(query[i], keys[:end], values[:end], **options)  # type: ignore[arg-type]
        torch.testing.assert_close(output[i], expected, atol=1e-5, rtol=1e-5)
    assert not output.isnan().any(), "padded rows hold numbers too"


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: "+".join(o) or "plain")
def test_decode_rows_equal_plain_attention_and_padded_rows_are_zero(
    options: dict[str, object],
) -> None:
    torch.manual_seed(1)
    contexts = {3: [2], 4: [5, 11], 8: [1, 8, 10]}
    cache = Cache()
    rows, expected = [], []
    query, key, value = random_qkv(5)
    for i, (num_computed, block_ids) in enumerate(contexts.items()):
        keys, values = random_qkv(num_computed)[1:]
        cache.fill(block_ids, keys, values)
        keys, values = torch.cat([keys, key[i : i + 1]]), torch.cat([values, value[i : i + 1]])
        expected.append(attend_plainly(query[i], keys, values, **options))  # type: ignore[arg-type]
        rows.append(StepTokens([0], num_computed, block_ids))
    key[3:] = value[3:] = math.nan
    inputs = decode_inputs(DecodeBucket(5, MAX_MODEL_LEN), rows, block_size=BLOCK_SIZE)
    output = attend_paged(inputs, cache, (query, key, value), **options)
    torch.testing.assert_close(output[:3], torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert torch.equal(output[3:], torch.zeros_like(output[3:]))


def test_what_stands_in_unused_slots_changes_no_bit() -> None:
    outputs = []
    for poison in (math.nan, 0.0, 7.0, -math.inf):
        torch.manual_seed(2)
        cache = Cache()
        cache.keys.fill_(poison)
        cache.values.fill_(poison)
        keys, values = random_qkv(5)[1:]
        cache.fill([4, 6], keys, values)
        qkv = random_qkv(2)
        inputs = decode_inputs(
            DecodeBucket(2, MAX_MODEL_LEN), [StepTokens([0], 5, [4, 6])], block_size=BLOCK_SIZE
        )
        outputs.append(attend_paged(inputs, cache, qkv))
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


def test_writing_touches_the_real_tokens_slots_only() -> None:
    cache = Cache()
    inputs = prefill_inputs(
        PrefillBucket(8), StepTokens([0] * 3, 2, [5, 2]), max_model_len=8, block_size=BLOCK_SIZE
    )
    before = cache.keys.clone()
    _, key, _ = qkv = random_qkv(8)
    attend_paged(inputs, cache, qkv)
    changed = (cache.keys.nan_to_num(99.0) != before.nan_to_num(99.0)).any(-1).any(-1)
    assert changed.nonzero().tolist() == [[2, 0], [5, 2], [5, 3]]
    assert torch.equal(cache.keys[5, 2:], key[:2])
    assert torch.equal(cache.keys[2, 0], key[2])
