"""Verification passes graphs that are right, and names the fault of every graph that is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from eager_session import EagerSession

from neuron_llm.backends.graph.attention import AttentionContext
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.compile.verify import cases as verification_cases
from neuron_llm.compile.verify.cases import Case, Lengths, decode_cases, prefill_cases
from neuron_llm.compile.verify.reference import Reference
from neuron_llm.compile.verify.verification import Verifier
from neuron_llm.errors import CompileError
from neuron_llm.scheduler.buckets import Bucket, BucketSet, DecodeBucket, PrefillBucket

BLOCK_SIZE, NUM_BLOCKS, MAX_MODEL_LEN = 4, 49, 48
BUCKETS = BucketSet(
    prefill=(PrefillBucket(8), PrefillBucket(16)),
    decode=(DecodeBucket(1, 48), DecodeBucket(4, 24), DecodeBucket(4, 48)),
)
LENGTHS = Lengths(MAX_MODEL_LEN, BLOCK_SIZE, NUM_BLOCKS - 1)


@pytest.fixture(scope="module")
def references(llama_model: Path, qwen3_model: Path) -> dict[str, tuple[Path, Reference]]:
    models = {"llama": llama_model, "qwen3": qwen3_model}
    return {name: (path, Reference(path, torch.float32)) for name, path in models.items()}


def verifier(session: EagerSession, reference: Reference) -> Verifier:
    return Verifier(session, reference, BUCKETS, LENGTHS, dtype="float32")


def session_of(checkpoint: Path) -> EagerSession:
    return EagerSession(checkpoint, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)


@pytest.mark.parametrize("bucket", BUCKETS.all, ids=lambda bucket: bucket.name)
@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_a_right_graph_passes(
    model: str, bucket: Bucket, references: dict[str, tuple[Path, Reference]]
) -> None:
    checkpoint, reference = references[model]
    verdict = verifier(session_of(checkpoint), reference).verify(bucket)
    assert verdict.num_tokens_equal == verdict.num_tokens >= verdict.num_cases >= 4
    # Nothing at all on a CPU whose kernels add in the same order here and there.
    assert 0 <= verdict.worst_error < 1e-4


Change = Callable[[pytest.MonkeyPatch, EagerSession], None]


def on_inputs(change: Callable[[Bucket, GraphInputs], GraphInputs]) -> Change:
    def apply(patch: pytest.MonkeyPatch, session: EagerSession) -> None:
        run = session.execute
        patch.setattr(
            session, "execute", lambda bucket, inputs: run(bucket, change(bucket, inputs))
        )

    return apply


def on_context(name: str, make: Callable[..., object]) -> Change:
    def apply(patch: pytest.MonkeyPatch, session: EagerSession) -> None:
        patch.setattr(AttentionContext, name, make(getattr(AttentionContext, name)))

    return apply


def write_padding_into_the_last_slot(_: object) -> Callable[..., None]:
    def write(self: AttentionContext, cache: torch.Tensor, rows: torch.Tensor) -> None:
        cache.flatten(0, 1)[self.slot_mapping] = rows

    return write


def write_padding_into_the_null_block(_: object) -> Callable[..., None]:
    def write(self: AttentionContext, cache: torch.Tensor, rows: torch.Tensor) -> None:
        cache.flatten(0, 1)[self.slot_mapping.clamp(min=0)] = rows

    return write


def read_without_zeroing(_: object) -> Callable[..., torch.Tensor]:
    def read(self: AttentionContext, cache: torch.Tensor) -> torch.Tensor:
        rows = cache.index_select(0, self.block_tables.reshape(-1))
        return rows.reshape(self.num_seqs, -1, *cache.shape[2:]).transpose(1, 2)

    return read


def see_one_key_less(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def visible(self: AttentionContext, window: int | None) -> torch.Tensor:
        return original(self, window).roll(-1, dims=-1)

    return visible


def see_one_key_more(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def visible(self: AttentionContext, window: int | None) -> torch.Tensor:
        seen = original(self, window)
        return seen | seen.roll(1, dims=-1)

    return visible


def earlier_row(bucket: Bucket, inputs: GraphInputs) -> GraphInputs:
    return replace(inputs, logits_indices=(inputs.logits_indices - 1).clamp(min=0))


def narrower_table(bucket: Bucket, inputs: GraphInputs) -> GraphInputs:
    tables = inputs.block_tables.clone()
    tables[:, -1] = 0
    return replace(inputs, block_tables=tables)


def shorter_context(bucket: Bucket, inputs: GraphInputs) -> GraphInputs:
    return replace(inputs, context_lens=(inputs.context_lens - 1).clamp(min=0))


def later_position(bucket: Bucket, inputs: GraphInputs) -> GraphInputs:
    return replace(inputs, positions=inputs.positions + 1)


def next_slot(bucket: Bucket, inputs: GraphInputs) -> GraphInputs:
    slots = inputs.slot_mapping
    return replace(inputs, slot_mapping=torch.where(slots >= 0, slots ^ 1, slots))


def pad_token_seen(bucket: Bucket, inputs: GraphInputs) -> GraphInputs:
    """Let the last real token stand where the last padded one does."""
    ids = inputs.input_ids.clone()
    ids[:1] = ids[-1:]
    return replace(inputs, input_ids=ids)


def hear_the_padding(patch: pytest.MonkeyPatch, session: EagerSession) -> None:
    """Let the last padded id change every logit by far less than rounding may."""
    run = session.execute
    patch.setattr(
        session,
        "execute",
        lambda bucket, inputs: run(bucket, inputs) + 1e-7 * inputs.input_ids[-1],
    )


FAULTS: dict[str, tuple[Change, str]] = {
    "mask hides the query's own key": (on_context("visible_keys", see_one_key_less), "differ by"),
    "mask shows the next key": (on_context("visible_keys", see_one_key_more), "differ by"),
    "last-token index": (on_inputs(earlier_row), "differ by"),
    "pad slot": (
        on_context("write", write_padding_into_the_last_slot),
        "not the tokens' own|nobody's",
    ),
    "null block": (
        on_context("write", write_padding_into_the_null_block),
        "a slot is written that is not the tokens' own",
    ),
    "dead keys not zeroed": (on_context("read", read_without_zeroing), "differ by nan"),
    "block table width": (on_inputs(narrower_table), "differ by"),
    "context length": (on_inputs(shorter_context), "differ by"),
    "position": (on_inputs(later_position), "differ by"),
    "slot": (on_inputs(next_slot), "differ by|own"),
    "pad token": (on_inputs(pad_token_seen), "padded tokens change|differ by"),
    "faint padding": (hear_the_padding, "the ids of padded tokens change the result"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_graph_is_named_with_its_position(
    fault: str,
    references: dict[str, tuple[Path, Reference]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint, reference = references["llama"]
    change, what = FAULTS[fault]
    session = session_of(checkpoint)
    change(monkeypatch, session)
    faulty = verifier(session, reference)
    with pytest.raises(CompileError, match=what) as caught:
        for bucket in BUCKETS.all:
            faulty.verify(bucket)
    assert "graph `" in caught.value.message and "at position " in caught.value.message
    assert "--no-verify" in (caught.value.hint or "")


def test_another_token_in_float32_is_a_fault_however_close_the_logits_are(
    references: dict[str, tuple[Path, Reference]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, reference = references["llama"]
    session = session_of(checkpoint)
    run = session.execute

    def without_the_best(bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        logits = run(bucket, inputs)
        best = logits.argmax(-1, keepdim=True)
        return logits.scatter(1, best, logits.topk(2).values[:, 1:] - 1e-4)

    monkeypatch.setattr(session, "execute", without_the_best)
    faulty = verifier(session, reference)
    faulty.tolerance = 1.0
    with pytest.raises(CompileError, match="another token is the most likely one"):
        faulty.verify(BUCKETS.all[0])


def contexts(cases: list[Case]) -> set[int]:
    return {row.context_len for case in cases for row in case.rows}


def test_a_prefill_graph_is_tried_full_one_less_and_on_the_smallest_it_serves() -> None:
    cases = prefill_cases(PrefillBucket(16), BUCKETS, LENGTHS)
    sizes = {(row.start, row.num_tokens) for case in cases for row in case.rows}
    assert {(0, 16), (0, 15), (0, 9), (4, 16), (5, 16), (4, 9), (5, 15)} <= sizes
    assert all(8 < num_tokens <= 16 for _, num_tokens in sizes)
    small = prefill_cases(PrefillBucket(8), BUCKETS, LENGTHS)
    assert {1, 3, 4, 5, 7, 8} <= {row.num_tokens for case in small for row in case.rows}


def test_a_decode_graph_is_tried_at_the_ends_of_its_context_and_of_blocks() -> None:
    wide = decode_cases(DecodeBucket(4, 48), BUCKETS, LENGTHS)
    assert {48, 47, 25, 3, 4, 5} <= contexts(wide)
    assert {len(case.rows) for case in wide} == {2, 3, 4}
    assert max(contexts(decode_cases(DecodeBucket(4, 24), BUCKETS, LENGTHS))) == 24
    assert {len(c.rows) for c in decode_cases(DecodeBucket(1, 48), BUCKETS, LENGTHS)} == {1}


def test_cases_fit_the_cache_and_the_longest_context_that_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = replace(LENGTHS, num_usable_blocks=13)
    for case in decode_cases(DecodeBucket(4, 48), BUCKETS, few):
        assert sum(-(-row.context_len // BLOCK_SIZE) for row in case.rows) <= 13
    monkeypatch.setattr(verification_cases, "MAX_VERIFIED_CONTEXT", 20)
    assert max(contexts(decode_cases(DecodeBucket(4, 24), BUCKETS, LENGTHS))) == 20
    # One more than the graph of shorter contexts holds: otherwise the graph would not be tried.
    assert max(contexts(decode_cases(DecodeBucket(4, 48), BUCKETS, LENGTHS))) == 25


@pytest.mark.parametrize("limit", [1, 8, 20])
def test_a_long_prefill_is_tried_at_its_size_whatever_the_longest_context_is(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification_cases, "MAX_VERIFIED_CONTEXT", limit)
    sizes = {
        (row.start, row.num_tokens)
        for case in prefill_cases(PrefillBucket(16), BUCKETS, LENGTHS)
        for row in case.rows
    }
    assert {(0, 16), (0, 15), (0, 9), (4, 16), (5, 16)} <= sizes
