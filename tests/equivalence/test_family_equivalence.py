"""Every family, as exported programs: the answers are eager Hugging Face's, token for token.

In the form with the CPU operators, which is what is compiled. The plain form is run for every
family in `tests/backends/neuron/graph/test_functional_graph.py`, and exported here where its graph
is of another kind; exported for every family in `tests/prove/test_families.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from families import FAMILIES, SHORTEST_PROMPTS
from family_engine import (
    DECODE_BUCKET,
    MAX_NUM_SEQS,
    ExportedSession,
    FamilyReference,
    assert_exported_family_equals_eager,
    assert_plain_family_equals_eager,
    exported_engine,
    use_operators,
)
from tiny_models import save_model

from neuron_llm.scheduler import PrefillBucket

BUCKET = 16
"""Tokens of the prefill program: longer prompts are computed in chunks."""
PLAIN_KINDS = {
    "llama": "every part that all families have",
    "gemma2": "soft-capped scores, and layers in turn with and without a window",
    "qwen3-moe": "experts of which few are picked: their weights are copied together",
    "gpt-oss": "sinks, windows, and experts that all run",
}
"""Families whose plain form is exported, and what no other of them has."""


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
    model: Path, reference: FamilyReference, compile_cache: Path
) -> None:
    use_operators(compile_cache)
    session = ExportedSession(model, [PrefillBucket(BUCKET), DECODE_BUCKET], custom_ops=True)
    for concurrency in (1, MAX_NUM_SEQS):
        engine = exported_engine(model, session, [BUCKET])
        assert_exported_family_equals_eager(engine, reference, concurrency)


@pytest.mark.parametrize("family", PLAIN_KINDS, scope="module", indirect=True)
def test_the_aten_form_answers_as_eager_does_in_shorter_chunks(
    model: Path, reference: FamilyReference
) -> None:
    assert_plain_family_equals_eager(model, reference, BUCKET // 2)
