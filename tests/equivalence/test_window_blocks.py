"""What lies behind the window of a layer is never read at a decode step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from families import FAMILIES
from family_engine import (
    BLOCK_SIZE,
    DECODE_BUCKET,
    MAX_MODEL_LEN,
    ExportedSession,
    use_operators,
)
from tiny_models import random_prompt, save_model

from neuron_llm.backends.graph.inputs import StepTokens, decode_inputs, prefill_inputs
from neuron_llm.scheduler import PrefillBucket

PREFILL_BUCKET = PrefillBucket(16)
PROMPT_LENGTHS = (32, 13, 30)
NUM_STEPS = 8


@pytest.fixture(scope="module")
def session(compile_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> ExportedSession:
    use_operators(compile_cache)
    model = save_model(tmp_path_factory.mktemp("mistral"), FAMILIES["mistral"])
    return ExportedSession(model, [PREFILL_BUCKET, DECODE_BUCKET], custom_ops=True)


def prefill(session: ExportedSession, prompt: list[int], block_ids: list[int]) -> None:
    for start in range(0, len(prompt), PREFILL_BUCKET.num_tokens):
        chunk = prompt[start : start + PREFILL_BUCKET.num_tokens]
        tokens = StepTokens(chunk, start, block_ids)
        session.execute(
            PREFILL_BUCKET,
            prefill_inputs(
                PREFILL_BUCKET, tokens, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE
            ),
        )


def poison_behind(session: ExportedSession, rows: list[StepTokens], window: int) -> int:
    """Fill every block that lies behind a row's window with NaN; return how many there are."""
    blocks: list[int] = []
    for row in rows:
        first_visible = max(row.num_computed_tokens + 1 - window, 0)
        blocks += row.block_ids[: first_visible // BLOCK_SIZE]
    for cache in (*session.key_caches, *session.value_caches):
        cache[blocks] = math.nan
    return len(blocks)


def decoded(session: ExportedSession, window: int | None) -> tuple[list[torch.Tensor], int]:
    """Run some steps of all rows; return each step's logits and the number of poisoned blocks.

    Args:
        session: its cache is overwritten.
        window: poison what lies behind so many tokens before each step, or None for nothing.
    """
    per_row = MAX_MODEL_LEN // BLOCK_SIZE
    tables = [list(range(1 + i * per_row, 1 + (i + 1) * per_row)) for i in range(3)]
    for table, length in zip(tables, PROMPT_LENGTHS, strict=True):
        prefill(session, random_prompt(length, seed=length), table)
    logits, num_poisoned = [], 0
    for step in range(NUM_STEPS):
        rows = [
            StepTokens([7 * step + length], length + step, table)
            for table, length in zip(tables, PROMPT_LENGTHS, strict=True)
        ]
        if window is not None:
            num_poisoned += poison_behind(session, rows, window)
        inputs = decode_inputs(DECODE_BUCKET, rows, block_size=BLOCK_SIZE)
        logits.append(session.execute(DECODE_BUCKET, inputs).clone())
    return logits, num_poisoned


def test_blocks_behind_the_window_are_not_read_at_decode(session: ExportedSession) -> None:
    clean, _ = decoded(session, None)
    poisoned, num_poisoned = decoded(session, FAMILIES["mistral"]["sliding_window"])
    # Of rows of 32, 13 and 30 tokens, the blocks behind the last 11, at each of 8 steps.
    lengths = [length + step + 1 for length in PROMPT_LENGTHS for step in range(NUM_STEPS)]
    assert num_poisoned == sum(max(length - 11, 0) // BLOCK_SIZE for length in lengths) > 90
    assert all(torch.equal(a, b) for a, b in zip(clean, poisoned, strict=True))
    assert all(step.isfinite().all() for step in poisoned)


def test_a_block_within_the_window_is_read(session: ExportedSession) -> None:
    poisoned, _ = decoded(session, FAMILIES["mistral"]["sliding_window"] - BLOCK_SIZE)
    assert poisoned[-1].isnan().any()
