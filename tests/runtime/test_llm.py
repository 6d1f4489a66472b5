"""`LLM` beside generating: the log of its run, and what the model says of sampling."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import Compiled
from manifest_edits import edit_manifest

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.errors import ArtifactError
from neuron_llm.report.run.last_run import LastRun, read_last_run

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def last_run(artifact: Path, state_dir: Path) -> LastRun | None:
    manifest = read_manifest(artifact)
    return read_last_run(manifest.artifact_id, manifest.buckets, state_dir)


def test_no_log_is_kept_unless_a_place_is_named(llama: Compiled, empty_state: Path) -> None:
    with LLM(llama.artifact) as llm:
        llm.generate([[1, 2, 3]], GREEDY)
        assert llm.run_log is None
    assert list(empty_state.iterdir()) == []


def test_the_log_is_there_when_the_model_is_closed(llama: Compiled, tmp_path: Path) -> None:
    llm = LLM(llama.artifact, state_dir=tmp_path)
    llm.generate([[1, 2, 3]], GREEDY)
    assert last_run(llama.artifact, tmp_path) is None
    llm.close()
    llm.close()
    # A prefill and three decodes; what runs later is in no log.
    llm.generate([[1, 2, 3]], GREEDY)
    run = last_run(llama.artifact, tmp_path)
    assert run is not None and run.account.total.num_uses == 4
    assert llm.run_log is not None and llm.run_log.failure is None


def test_a_block_that_fails_keeps_the_log_before(llama: Compiled, tmp_path: Path) -> None:
    for num_prompts, error in ((1, None), (2, RuntimeError)):
        try:
            with LLM(llama.artifact, state_dir=tmp_path) as llm:
                llm.generate([[number] for number in range(num_prompts)], GREEDY)
                if error is not None:
                    raise error
        except RuntimeError:
            pass
        run = last_run(llama.artifact, tmp_path)
        assert run is not None and run.account.total.num_uses == 4


def test_an_artifact_that_cannot_be_loaded_leaves_no_log(llama: Compiled, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(llama.artifact, tmp_path / "artifact"))
    edit_manifest(copy, lambda m: m["golden"]["tokens"].update(decode_b2_c64=7))
    with pytest.raises(ArtifactError, match="gives token"):
        LLM(copy, state_dir=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_the_default_parameters_are_the_models(llama: Compiled, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(llama.artifact, tmp_path / "artifact"))
    llm = LLM(copy)
    path = copy / "generation_config.json"
    path.write_text(json.dumps({"temperature": 0.5, "top_k": 7}))
    params = llm.get_default_sampling_params()
    assert (params.temperature, params.top_k, params.max_tokens) == (0.5, 7, 16)
    path.write_text("[]")
    with pytest.raises(ArtifactError, match="it is no JSON object"):
        llm.get_default_sampling_params()


def test_a_template_replaces_the_models_in_a_chat(llama: Compiled) -> None:
    llm = LLM(llama.artifact)
    conversation = [{"role": "user", "content": "hello"}]
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    replied = llm.chat(conversation, GREEDY, chat_template=template)
    (expected,) = llm.generate("hello", GREEDY)
    assert replied.prompt_token_ids == expected.prompt_token_ids
    assert replied.outputs[0].token_ids == expected.outputs[0].token_ids
