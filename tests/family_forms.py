"""A family's model in each form that the CPU runs, and held to eager Hugging Face."""

from __future__ import annotations

from pathlib import Path

from conftest import compile_tiny
from families import FAMILIES, SHORTEST_PROMPTS
from family_engine import (
    BLOCK_SIZE,
    DECODE_BUCKET,
    MAX_MODEL_LEN,
    MAX_NUM_SEQS,
    ExportedSession,
    FamilyReference,
    answers,
    exported_engine,
)
from tiny_models import save_model

from neuron_llm import LLM
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.scheduler import PrefillBucket

BUCKET = 16
"""Tokens of the prefill graph: longer prompts are computed in chunks."""
CONFIG = f"""\
model: {{model}}
dtype: float32
max_model_len: {MAX_MODEL_LEN}
max_num_seqs: {MAX_NUM_SEQS}
max_num_batched_tokens: {BUCKET}
block_size: {BLOCK_SIZE}
neuron_config:
  num_batched_tokens_buckets: [{BUCKET}]
  num_seqs_buckets: [{MAX_NUM_SEQS}]
"""


def assert_compiled_form_equals_eager(family: str, cache_dir: Path, directory: Path) -> None:
    """Compile one prefill and one decode graph, verified, and compare answers.

    Args:
        family: a name of `FAMILIES`.
        cache_dir: the compile cache.
        directory: empty; the model and the artifact go there.
    """
    model = save_model(directory / "model", FAMILIES[family])
    compiled = compile_tiny(model, CONFIG, cache_dir, directory)
    reference = _reference(family, model)
    for concurrency in (1, MAX_NUM_SEQS):
        _compare(LLM(compiled.artifact).engine, reference, concurrency)


def assert_operator_form_equals_eager(family: str, directory: Path) -> None:
    """Export one prefill and one decode program with the CPU operators, and compare answers.

    Args:
        family: a name of `FAMILIES`.
        directory: empty; the model goes there.
    """
    model = save_model(directory / "model", FAMILIES[family])
    session = ExportedSession(model, [PrefillBucket(BUCKET), DECODE_BUCKET], custom_ops=True)
    reference = _reference(family, model)
    for concurrency in (1, MAX_NUM_SEQS):
        _compare(exported_engine(model, session, [BUCKET]), reference, concurrency)


def assert_plain_form_equals_eager(family: str, directory: Path) -> None:
    """Export the same in plain aten, in chunks half as long, and compare answers.

    Args:
        family: a name of `FAMILIES`.
        directory: empty; the model goes there.
    """
    model = save_model(directory / "model", FAMILIES[family])
    chunk = BUCKET // 2
    session = ExportedSession(model, [PrefillBucket(chunk), DECODE_BUCKET], custom_ops=False)
    engine = exported_engine(model, session, [chunk])
    _compare(engine, _reference(family, model), MAX_NUM_SEQS)


def _reference(family: str, model: Path) -> FamilyReference:
    reference = FamilyReference(model, BUCKET, SHORTEST_PROMPTS.get(family, 1))
    assert reference.is_diverse()
    return reference


def _compare(engine: Engine, reference: FamilyReference, concurrency: int) -> None:
    """Compare with a cold cache, then those prompts again whose blocks are in it."""
    cold = answers(engine, reference.prompts, concurrency)
    assert cold.token_ids == reference.expected
    assert cold.num_cached_tokens == 0
    warm = answers(engine, reference.prompts[-3:], concurrency)
    assert warm.token_ids == reference.expected[-3:]
    assert warm.num_cached_tokens > 0
