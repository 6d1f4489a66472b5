"""One token's bits: whichever graph computes it, in whichever row, beside whomever."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from conftest import Compiled

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.graph.inputs import StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.protocol import Session
from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket

BLOCK_SIZE, MAX_MODEL_LEN, NUM_BLOCKS = 4, 64, 60
NUM_PROMPTS = 8


@dataclass(frozen=True)
class Tokens:
    """Some tokens, and the blocks that their KV goes into."""

    tokens: tuple[int, ...]
    block_ids: tuple[int, ...]


class Graphs:
    """Runs the graphs of a session, and reads what they have left in the cache."""

    def __init__(self, session: Session, buckets: BucketSet) -> None:
        self.session = session
        self.buckets = buckets

    def prefill(self, sequence: Tokens, sizes: Iterator[int], *, largest: bool) -> torch.Tensor:
        """Compute all tokens in chunks; return the logits of the last."""
        computed, logits = 0, torch.empty(0)
        while computed < len(sequence.tokens):
            chunk = sequence.tokens[computed : computed + next(sizes)]
            bucket = self.buckets.pick_prefill_bucket(len(chunk))
            bucket = self.buckets.prefill[-1] if largest else bucket
            logits = self._chunk(bucket, StepTokens(chunk, computed, sequence.block_ids))
            computed += len(chunk)
        return logits

    def _chunk(self, bucket: PrefillBucket, tokens: StepTokens) -> torch.Tensor:
        inputs = prefill_inputs(bucket, tokens, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        return self.session.execute(bucket, inputs)[0].clone()

    def decode(self, bucket: DecodeBucket, rows: Sequence[StepTokens]) -> torch.Tensor:
        """Compute one token per row; return all logits."""
        inputs = decode_inputs(bucket, rows, block_size=BLOCK_SIZE)
        return self.session.execute(bucket, inputs).clone()

    def decode_all(self, bucket: DecodeBucket, sequence: Tokens) -> torch.Tensor:
        """Compute all tokens one by one; return the logits of the last."""
        logits = torch.empty(0)
        for position, token in enumerate(sequence.tokens):
            logits = self.decode(bucket, [StepTokens([token], position, sequence.block_ids)])[0]
        return logits

    def kv(self, sequence: Tokens) -> torch.Tensor:
        """Return the keys and values of a sequence's tokens, of all layers."""
        caches = (*self.session.key_caches, *self.session.value_caches)
        blocks = list(sequence.block_ids)
        return torch.stack([c[blocks].flatten(0, 1)[: len(sequence.tokens)] for c in caches])


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def graphs(request: pytest.FixtureRequest, llama: Compiled, llama_bfloat16: Compiled) -> Graphs:
    compiled = llama if request.param == "float32" else llama_bfloat16
    artifact = Artifact.open(compiled.artifact)
    session = artifact.load()
    assert str(session.key_caches[0].dtype) == f"torch.{request.param}"
    return Graphs(session, artifact.manifest.buckets)


def random_sequences(rng: random.Random) -> Iterator[Tokens]:
    for _ in range(NUM_PROMPTS):
        length = rng.randint(1, MAX_MODEL_LEN - 1)
        blocks = rng.sample(range(1, NUM_BLOCKS), MAX_MODEL_LEN // BLOCK_SIZE)
        yield Tokens(tuple(rng.choices(range(256), k=length)), tuple(blocks))


def same_size(size: int) -> Iterator[int]:
    while True:
        yield size


def mixed_sizes(rng: random.Random, sizes: Sequence[int]) -> Iterator[int]:
    while True:
        yield rng.choice(sizes)


@pytest.mark.parametrize("largest", [True, False], ids=["largest graph", "smallest that fits"])
@pytest.mark.parametrize("unit", [BLOCK_SIZE, 1], ids=["whole blocks", "any chunks"])
def test_chunks_change_no_bit_of_a_prompt(graphs: Graphs, unit: int, largest: bool) -> None:
    rng = random.Random(1)
    size = graphs.buckets.prefill[-1].num_tokens
    for sequence in random_sequences(rng):
        logits = graphs.prefill(sequence, same_size(size), largest=True)
        kv = graphs.kv(sequence)
        sizes = mixed_sizes(rng, range(unit, size + 1, unit))
        assert torch.equal(graphs.prefill(sequence, sizes, largest=largest), logits)
        assert torch.equal(graphs.kv(sequence), kv)


def test_neighbours_rows_and_batch_sizes_change_no_bit_of_a_decode(graphs: Graphs) -> None:
    rng = random.Random(2)
    for sequence in random_sequences(rng):
        prompt = Tokens(sequence.tokens[:-1], sequence.block_ids)
        graphs.prefill(prompt, same_size(16), largest=True)
        row = StepTokens(sequence.tokens[-1:], len(prompt.tokens), sequence.block_ids)
        others = [i for i in range(1, NUM_BLOCKS) if i not in sequence.block_ids]
        outcomes = []
        for bucket in graphs.buckets.decode:
            for num_neighbours in {0, bucket.batch_size - 1, rng.randrange(bucket.batch_size)}:
                rows = [
                    StepTokens([rng.randrange(256)], rng.randint(0, 15), others[4 * i : 4 * i + 4])
                    for i in range(num_neighbours)
                ]
                index = rng.randint(0, num_neighbours)
                rows.insert(index, row)
                outcomes.append((graphs.decode(bucket, rows)[index], graphs.kv(sequence)))
        for logits, kv in outcomes:
            assert torch.equal(logits, outcomes[0][0])
            assert torch.equal(kv, outcomes[0][1])


def test_every_decode_graph_computes_the_bits_of_a_prefill(graphs: Graphs) -> None:
    for sequence in random_sequences(random.Random(3)):
        logits = graphs.prefill(sequence, same_size(16), largest=True)
        kv = graphs.kv(sequence)
        for bucket in graphs.buckets.decode:
            assert torch.equal(graphs.decode_all(bucket, sequence), logits)
            assert torch.equal(graphs.kv(sequence), kv)
