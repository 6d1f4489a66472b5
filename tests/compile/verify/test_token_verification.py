"""Verification of graphs that give tokens: the right ones pass, wrong ones are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from eager_session import EagerSession

from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.compile.verify.cases import Lengths
from neuron_llm.compile.verify.reference import Reference
from neuron_llm.compile.verify.verification import Verifier
from neuron_llm.errors import CompileError
from neuron_llm.scheduler.buckets import Bucket, BucketSet, DecodeBucket, PrefillBucket

BLOCK_SIZE, NUM_BLOCKS, MAX_MODEL_LEN = 4, 49, 48
BUCKETS = BucketSet(prefill=(PrefillBucket(8),), decode=(DecodeBucket(4, 48),))
LENGTHS = Lengths(MAX_MODEL_LEN, BLOCK_SIZE, NUM_BLOCKS - 1)
Choice = Callable[[torch.Tensor], torch.Tensor]


class TokenSession(EagerSession):
    """Gives the tokens that `choose` takes from the logits, as a graph that samples."""

    choose: Choice = staticmethod(lambda logits: logits.argmax(dim=-1))

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        return self.choose(super().execute(bucket, inputs)).to(torch.int32)


@pytest.fixture(scope="module")
def reference(qwen3_model: Path) -> Reference:
    return Reference(qwen3_model, torch.float32)


@pytest.fixture
def session(qwen3_model: Path) -> TokenSession:
    return TokenSession(qwen3_model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)


def verifier(session: TokenSession, reference: Reference, dtype: str = "float32") -> Verifier:
    return Verifier(session, reference, BUCKETS, LENGTHS, dtype=dtype, samples_greedily=True)


def ranked(rank: int) -> Choice:
    return lambda logits: logits.topk(rank + 1).indices[:, rank]


@pytest.mark.parametrize("bucket", BUCKETS.all, ids=lambda bucket: bucket.name)
def test_graphs_that_choose_as_the_model_does_pass_with_no_error(
    bucket: Bucket, session: TokenSession, reference: Reference
) -> None:
    verdict = verifier(session, reference).verify(bucket)
    assert verdict.num_tokens_equal == verdict.num_tokens >= verdict.num_cases >= 4
    assert verdict.worst_error == 0


FAULTS: dict[str, tuple[Choice, str]] = {
    "the token behind": (lambda logits: logits.argmax(-1) + 1, "below the most likely|outside"),
    "the second most likely": (ranked(1), "below the most likely|another token"),
    "the least likely": (lambda logits: logits.argmin(-1), "below the most likely"),
    "the row before": (lambda logits: logits.argmax(-1).roll(1), "below the most likely|another"),
    "the first row": (lambda logits: logits.argmax(-1)[:1].repeat(len(logits)), "below|another"),
    "outside the vocabulary": (lambda logits: logits.argmax(-1) - 300, "outside the vocabulary"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_choice_is_named_with_its_position(
    fault: str, session: TokenSession, reference: Reference
) -> None:
    choice, what = FAULTS[fault]
    session.choose = choice
    with pytest.raises(CompileError, match=what) as caught:
        verifier(session, reference).verify(DecodeBucket(4, 48))
    assert "graph `decode_b4_c48`" in caught.value.message
    assert "at position " in caught.value.message


def test_in_lower_precision_a_near_tie_may_fall_the_other_way_and_no_more(
    session: TokenSession, reference: Reference
) -> None:
    session.choose = ranked(1)
    lenient = verifier(session, reference, "bfloat16")
    lenient.tolerance = 100.0
    worst = lenient.verify(DecodeBucket(4, 48))
    assert worst.num_tokens_equal == 0 and worst.worst_error > 0
    lenient.tolerance = worst.worst_error
    assert lenient.verify(DecodeBucket(4, 48)) == worst
    lenient.tolerance = worst.worst_error * 0.99
    with pytest.raises(CompileError, match="below the most likely"):
        lenient.verify(DecodeBucket(4, 48))


def test_keys_and_values_are_compared_as_with_logits(
    session: TokenSession, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = session.execute

    def spoil(bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        tokens = run(bucket, inputs)
        session.value_caches[1].mul_(1.01)
        return tokens

    monkeypatch.setattr(session, "execute", spoil)
    with pytest.raises(CompileError, match="keys or values differ by"):
        verifier(session, reference).verify(PrefillBucket(8))
