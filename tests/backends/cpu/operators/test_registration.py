"""The operators in exported graphs, with and without a library."""

from __future__ import annotations

import pytest
import torch
from attention_case import PagedCase
from level_libraries import level_library

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import widest_level
from neuron_llm.backends.cpu.operators.registration import LibraryRegistry, use_library

# torch's own, from copying a program.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Attend(torch.nn.Module):
    """One attention layer; its caches are inputs that it changes."""

    def forward(
        self,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        caches: tuple[torch.Tensor, torch.Tensor],
        indices: tuple[torch.Tensor, ...],
    ) -> torch.Tensor:
        output: torch.Tensor = torch.ops.neuron_llm.paged_attention(
            *(*(t * 1.0 for t in qkv), *caches, *indices, 0.125, 0.0, 0, None)
        )
        return output.flatten(1) + 0.0


def inputs(case: PagedCase) -> tuple[tuple[torch.Tensor, ...], ...]:
    operands = case.operands(case.prefill(0, 0, 40))
    return operands[:3], operands[3:5], operands[5:9]


def export() -> torch.export.ExportedProgram:
    return torch.export.export(Attend(), inputs(PagedCase([40])), strict=False)


def test_exporting_needs_no_library() -> None:
    targets = [str(node.target) for node in export().graph.nodes]
    assert "neuron_llm.paged_attention.default" in targets
    with pytest.raises(AssertionError, match="use_library"):
        _ = LibraryRegistry().library


def test_decomposing_keeps_the_operator_and_names_the_caches_as_changed() -> None:
    decomposed = export().run_decompositions()
    operators = [
        (str(node.target), node.args)
        for node in decomposed.graph.nodes
        if "auto_functionalized" in str(node.target)
    ]
    assert len(operators) == 1 and "paged_attention" in str(operators[0][1][0])
    changed = decomposed.graph_signature.user_inputs_to_mutate.values()
    assert sorted(changed) == ["caches_0", "caches_1"]


@pytest.mark.parametrize("is_decomposed", [False, True])
def test_an_exported_graph_computes_and_changes_the_caches(
    request: pytest.FixtureRequest, is_decomposed: bool
) -> None:
    use_library(level_library(widest_level(cpu_features()), request.config))
    exported = export().run_decompositions() if is_decomposed else export()
    case, expected = PagedCase([40]), PagedCase([40])
    output = exported.module()(*inputs(case))
    assert torch.equal(output, expected.run(expected.prefill(0, 0, 40)).flatten(1))
    slots = case.sequences[0].slots(list(range(40)))
    for cache, sequence_rows in (
        (case.key_cache, case.sequences[0].key),
        (case.value_cache, case.sequences[0].value),
    ):
        assert torch.equal(cache.flatten(0, 1)[slots], sequence_rows)


def test_fake_and_real_results_have_the_same_form(request: pytest.FixtureRequest) -> None:
    use_library(level_library(widest_level(cpu_features()), request.config))
    case = PagedCase([40])
    for cache in (case.key_cache, case.value_cache):
        cache.zero_()
    torch.library.opcheck(
        torch.ops.neuron_llm.paged_attention.default, case.operands(case.prefill(0, 0, 40))
    )
