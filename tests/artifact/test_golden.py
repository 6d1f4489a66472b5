"""The self-test at load: silent where the graphs compute what they did, and loud where not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from conftest import Compiled
from manifest_edits import edit_manifest

from neuron_llm import LLM
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.golden import GoldenTest
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.errors import ArtifactError


@pytest.fixture
def copy(llama: Compiled, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama.artifact, tmp_path / "artifact"))


def test_an_artifact_holds_golden_tokens_of_every_decode_graph_and_of_chunks(
    llama: Compiled,
) -> None:
    golden = read_manifest(llama.artifact).golden
    assert golden is not None
    assert list(golden.tokens) == [
        "prefill_t8",
        "prefill_t8, second chunk",
        *("decode_b1_c64", "decode_b2_c64", "decode_b4_c64"),
    ]
    assert golden.tokens["prefill_t8, second chunk"] == golden.tokens["prefill_t8"]
    assert len(golden.prompt_token_ids) == 8
    assert len({golden.tokens[name] for name in golden.tokens if "decode" in name}) == 1


def test_golden_tokens_are_those_of_eager_hugging_face(llama: Compiled) -> None:
    from transformers import AutoModelForCausalLM

    golden = read_manifest(llama.artifact).golden
    assert golden is not None
    prompt = list(golden.prompt_token_ids)
    model = AutoModelForCausalLM.from_pretrained(llama.model)
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, prompt[0]]])).logits[0]
    assert golden.tokens["prefill_t8"] == int(logits[7].argmax())
    assert golden.tokens["decode_b4_c64"] == int(logits[8].argmax())


def test_a_token_that_differs_refuses_to_serve_and_says_where(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["golden"]["tokens"].update(decode_b2_c64=7))
    artifact = Artifact.open(copy)
    with pytest.raises(ArtifactError, match=r"`decode_b2_c64` gives token \d+ instead of 7") as e:
        artifact.load()
    assert "prefill" not in e.value.message and "--no-self-test" in (e.value.hint or "")
    artifact.load(self_test=False)
    with pytest.raises(ArtifactError, match="`decode_b2_c64` gives token"):
        LLM(copy)
    assert LLM(copy, self_test=False).generate([[1, 2]])


def test_changed_weights_in_memory_are_noticed(llama: Compiled) -> None:
    artifact = Artifact.open(llama.artifact)
    session = artifact.load()

    class Broken:
        key_caches, value_caches = session.key_caches, session.value_caches

        def execute(self, bucket, inputs):  # type: ignore[no-untyped-def]
            return -session.execute(bucket, inputs)

    with pytest.raises(ArtifactError, match=r"`prefill_t8` gives .*`decode_b1_c64` gives"):
        GoldenTest(Broken(), artifact.manifest).check()


def test_an_artifact_that_was_not_verified_has_nothing_to_compare(copy: Path) -> None:
    edit_manifest(copy, lambda m: m.update(golden=None))
    Artifact.open(copy).load()
