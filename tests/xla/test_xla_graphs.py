"""Every family's Neuron graphs are static HLO modules, and XLA computes what Hugging Face does."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, SHORTEST_PROMPTS
from graph_cases import CASES, DECODE, lower_case
from hlo_text import ALLOWED_OPCODES, hlo_faults, opcodes
from lowered_graph import LoweredGraph, lower, lower_graph, named_inputs
from tiny_families import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    PREFILL,
    build_model,
    generate,
    graph_spec,
    nan_caches,
)
from tiny_models import load_reference, random_prompt, reference_tokens, save_model
from xla_session import XlaSession

from neuron_llm.backends.graph.experts import DENSE_EXPERTS_NAME
from neuron_llm.backends.graph.inputs import StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.neuron.graph.export import functional_graph, graph_of_model, zero_kv_caches
from neuron_llm.backends.neuron.graph.functional_attention import FUNCTIONAL_ATTENTION_NAME
from neuron_llm.backends.neuron.graph.functional_graph import StatefulGraph

PROMPTS = [random_prompt(length, seed=length) for length in (3, 9, 17, 41)]
NUM_TOKENS = 6
# Graphs of a run, and how many tokens of a prompt it computes at a time.
RUNS: dict[str, tuple[str, str, int | None]] = {
    "whole": ("prefill", "decode", None),
    "in segments and chunks": ("prefill_in_segments", "decode", 5),
    "sampled in the graph": ("prefill_sampled", "decode_sampled", None),
}


@pytest.fixture(scope="module")
def saved_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every graph of every family, as another process lowered and saved it."""
    directory = tmp_path_factory.mktemp("graphs")
    script = Path(__file__).with_name("graph_cases.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, script, directory], env=environment, check=True)
    return directory


@cache
def load(directory: Path, family: str, name: str) -> LoweredGraph:
    return LoweredGraph.load(directory / family / name)


def session(directory: Path, family: str, names: tuple[str, str], model: Any) -> XlaSession:
    graphs = {CASES[name].bucket: load(directory, family, name) for name in names}
    weights = dict(model.named_parameters(remove_duplicate=False))
    return XlaSession(graphs, weights, nan_caches(model))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_graph_is_one_static_module(family: str, name: str, saved_graphs: Path) -> None:
    assert hlo_faults(load(saved_graphs, family, name).text()) == []


def test_no_opcode_is_allowed_that_no_family_needs(saved_graphs: Path) -> None:
    found: set[str] = set()
    for family in FAMILIES:
        for name in CASES:
            found |= opcodes(load(saved_graphs, family, name).text())
    assert found == ALLOWED_OPCODES


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_eager_hugging_face(
    family: str, saved_graphs: Path, tmp_path: Path
) -> None:
    model = load_reference(save_model(tmp_path / "model", FAMILIES[family]))
    prompts = [p for p in PROMPTS if len(p) >= SHORTEST_PROMPTS.get(family, 1)]
    expected = [reference_tokens(model, prompt, NUM_TOKENS) for prompt in prompts]
    assert len({tuple(tokens) for tokens in expected}) == len(prompts)
    assert len({token for row in expected for token in row}) > 2, "a constant would agree with it"
    for run, (prefill, decode, chunk) in RUNS.items():
        xla = session(saved_graphs, family, (prefill, decode), model)
        assert generate(xla, prompts, NUM_TOKENS, chunk) == expected, run


@pytest.mark.parametrize("family", FAMILIES)
def test_the_module_is_the_same_byte_for_byte_in_another_process_and_of_other_weights(
    family: str, saved_graphs: Path
) -> None:
    model = build_model(family, FUNCTIONAL_ATTENTION_NAME, DENSE_EXPERTS_NAME, seed=1)
    for name, case in CASES.items():
        spec = graph_spec(family, case.bucket)
        here = lower_graph(graph_of_model(model, spec, case.target), spec)
        assert here.hlo == load(saved_graphs, family, name).hlo, name


@pytest.mark.parametrize("name", CASES)
def test_the_module_is_the_same_whether_it_owns_its_kv_states_or_is_given_them(
    name: str, saved_graphs: Path
) -> None:
    spec = graph_spec("gpt-oss", CASES[name].bucket)
    graph = functional_graph(spec, CASES[name].target)
    stateful = StatefulGraph(graph, zero_kv_caches(spec, graph.model))
    owning = lower(stateful, named_inputs(spec))
    assert owning.hlo == load(saved_graphs, "gpt-oss", name).hlo


@pytest.mark.parametrize("name", ["prefill_in_segments", "decode_sampled"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_graphs_are_static_too(family: str, name: str) -> None:
    text = lower_case(family, CASES[name], "bfloat16").text()
    assert hlo_faults(text) == []
    assert "bf16[" in text


@pytest.mark.parametrize("prefill", ["prefill", "prefill_in_segments"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt-oss"])
def test_padding_and_stale_rows_change_no_bit(
    family: str, prefill: str, saved_graphs: Path
) -> None:
    model = build_model(family, "eager")
    table = [5, 2, 9]
    results = []
    for poison, padding_id in ((torch.nan, 0), (7.0, 3), (-torch.inf, 200)):
        xla = session(saved_graphs, family, (prefill, "decode"), model)
        xla.kv_caches = [torch.full_like(cache, poison) for cache in xla.kv_caches]
        chunk = StepTokens(PROMPTS[1], 0, table)
        inputs = prefill_inputs(PREFILL, chunk, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        inputs.input_ids[len(PROMPTS[1]) :] = padding_id
        first = xla.execute(PREFILL, inputs)
        inputs = decode_inputs(
            DECODE, [StepTokens([3], len(PROMPTS[1]), table)], block_size=BLOCK_SIZE
        )
        inputs.input_ids[1:] = padding_id
        results.append((first, xla.execute(DECODE, inputs)[:1]))
    for first, second in results:
        assert first.isfinite().all() and second.isfinite().all()
        assert torch.equal(first, results[0][0])
        assert torch.equal(second, results[0][1])
