"""Every family: compiled for the CPU, exported in plain aten, and static on the way to a Neuron."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_family import BUCKET, assert_compiled_family_equals_eager
from families import FAMILIES, SHORTEST_PROMPTS
from family_engine import FamilyReference, assert_plain_family_equals_eager
from static_families import DECODE, exported_graph
from tiny_families import PREFILL
from tiny_models import save_model

from neuron_llm.backends.neuron.graph.static_graph import static_faults
from neuron_llm.scheduler.buckets import Bucket

pytestmark = pytest.mark.prove


@pytest.mark.parametrize("family", FAMILIES)
def test_every_compiled_family_answers_as_eager_does(
    family: str, compile_cache: Path, tmp_path: Path
) -> None:
    assert_compiled_family_equals_eager(family, compile_cache, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_aten_form_answers_as_eager_does(family: str, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", FAMILIES[family])
    reference = FamilyReference(model, BUCKET, SHORTEST_PROMPTS.get(family, 1))
    assert_plain_family_equals_eager(model, reference, BUCKET // 2)


@pytest.mark.parametrize("bucket", [PREFILL, DECODE], ids=lambda bucket: bucket.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_static(family: str, bucket: Bucket) -> None:
    assert static_faults(exported_graph(family, bucket)) == []
