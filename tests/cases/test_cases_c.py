"""Faults of artifacts: weights that belong to the graph, shapes that only the command knows."""

from __future__ import annotations

from pathlib import Path

from cli_runner import run_cli
from conftest import LLAMA_CONFIG, Compiled, compile_tiny
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
