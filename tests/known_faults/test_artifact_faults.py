"""Faults of artifacts: weights that belong to the graph, shapes that only the command knows."""

from __future__ import annotations

from pathlib import Path

import torch
from artifact_copy import copy_artifact
from cli_runner import run_cli
from conftest import LLAMA_CONFIG, Compiled, compile_tiny
from manifest_edits import edit_manifest
from tiny_models import LLAMA, load_reference, random_prompt, reference_tokens, save_model

from neuron_llm import LLM, SamplingParams


def test_a_fine_tune_compiles_nothing_and_answers_with_its_own_weights(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    """The fault: other weights mean hours of compiling, or the answers of the old ones."""
    model = save_model(tmp_path / "fine-tune", LLAMA, seed=1)
    fine_tune = compile_tiny(model, LLAMA_CONFIG, compile_cache, tmp_path)
    built = [event.status for event in fine_tune.events if event.status != "verified"]
    assert built == ["cached"] * 5
    prompt = random_prompt(11, seed=0)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    answers = [
        list(LLM(compiled.artifact).generate([prompt], params)[0].outputs[0].token_ids)
        for compiled in (llama, fine_tune)
    ]
    assert answers == [
        reference_tokens(load_reference(compiled.model), prompt, 8)
        for compiled in (llama, fine_tune)
    ]
    assert answers[0] != answers[1]


def test_shapes_are_the_artifacts_and_no_command_can_ask_for_others(llama: Compiled) -> None:
    """The fault: a server that asks for more than was compiled, and fails in traffic."""
    refused = run_cli("run", "--artifact", llama.artifact, "--max-num-seqs", 8)
    assert (refused.code, refused.stdout) == (2, "")
    shown = run_cli("inspect", llama.artifact, "--json").document
    assert shown["settings"]["max_num_seqs"] == 4
    assert [g["inputs"]["input_ids"] for g in shown["graphs"]] == [[8], [16], [1], [2], [4]]


def test_another_version_is_refused_with_both_and_with_the_command_that_helps(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: an opaque status code of the runtime, in the middle of loading."""
    artifact = copy_artifact(llama.artifact, Path("copy"), {})
    edit_manifest(artifact, lambda manifest: manifest["backend_versions"].update(torch="1.0.0"))
    Path("p.jsonl").write_text('{"prompt": "hello"}\n')
    ended = run_cli("run", "--prompts", "p.jsonl", "--artifact", artifact)
    assert (ended.code, ended.stdout) == (1, "")
    here = f"compiled with torch 1.0.0, but torch here is {torch.__version__}"
    assert here in ended.stderr
    assert "hint: compile it on this machine: `neuron-llm compile CONFIG`" in ended.stderr


def test_every_report_names_the_backend(llama: Compiled, empty_state: Path) -> None:
    """The fault: one asks for the accelerator, gets the CPU, and nothing says so."""
    Path("p.jsonl").write_text('{"prompt": "hello", "max_tokens": 2}\n')
    of = ("--artifact", llama.artifact, "--json")
    documents = [
        run_cli("inspect", llama.artifact, "--json").document,
        run_cli("run", "--prompts", "p.jsonl", "-o", "out.jsonl", *of).document,
        run_cli("bucket-report", *of).document,
        run_cli("compile", llama.config, "--dry-run", "--json").document,
    ]
    assert [document["backend"] for document in documents] == ["cpu"] * 4
