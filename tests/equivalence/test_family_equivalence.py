"""Every family, as exported programs: the answers are eager Hugging Face's, token for token."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import FAMILIES, SHORTEST_PROMPTS
from family_engine import (
    DECODE_BUCKET,
    MAX_NUM_SEQS,
    ExportedSession,
    FamilyReference,
    answers,
    exported_engine,
)
from tiny_models import save_model

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import widest_level
from neuron_llm.backends.cpu.operators.library import build_library, load_library
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.scheduler import PrefillBucket

BUCKET = 16
"""Tokens of the prefill program: longer prompts are computed in chunks."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp(family), FAMILIES[family])


@pytest.fixture(scope="module")
def reference(family: str, model: Path) -> FamilyReference:
    return FamilyReference(model, BUCKET, SHORTEST_PROMPTS.get(family, 1))


def test_reference_answers_are_diverse(reference: FamilyReference) -> None:
    assert reference.is_diverse()


def test_the_operator_form_answers_as_eager_does(
    model: Path, reference: FamilyReference, request: pytest.FixtureRequest
) -> None:
    assert request.config.cache is not None
    directory = request.config.cache.mkdir("operator_libraries")
    use_library(load_library(build_library(widest_level(cpu_features()), directory)))
    session = ExportedSession(model, [PrefillBucket(BUCKET), DECODE_BUCKET], custom_ops=True)
    for concurrency in (1, MAX_NUM_SEQS):
        assert_answers(exported_engine(model, session, [BUCKET]), reference, concurrency)


def test_the_aten_form_answers_as_eager_does_in_shorter_chunks(
    model: Path, reference: FamilyReference
) -> None:
    bucket = BUCKET // 2
    session = ExportedSession(model, [PrefillBucket(bucket), DECODE_BUCKET], custom_ops=False)
    assert_answers(exported_engine(model, session, [bucket]), reference, MAX_NUM_SEQS)


def assert_answers(engine: Engine, reference: FamilyReference, concurrency: int) -> None:
    """Compare with a cold cache, then those prompts again whose blocks are in it."""
    cold = answers(engine, reference.prompts, concurrency)
    assert cold.token_ids == reference.expected
    assert cold.num_cached_tokens == 0
    warm = answers(engine, reference.prompts[-3:], concurrency)
    assert warm.token_ids == reference.expected[-3:]
    assert warm.num_cached_tokens > 0
