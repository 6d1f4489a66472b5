"""What a compile would do, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_llm.backends.neuron.generations import DeviceMemory
from neuron_llm.cli.render.table import render_table
from neuron_llm.compile.compiler import graph_specs
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.options import CompileOptions
from neuron_llm.compile.plan.memory import GraphMemory, MemoryPlan
from neuron_llm.compile.plan.neuron_code import MAX_INSTRUCTIONS
from neuron_llm.compile.plan.plan import CompilePlan, NeuronPlan
from neuron_llm.errors import ArtifactError
from neuron_llm.quantities import shown_bytes
from neuron_llm.report.run.bucket_range import bucket_ranges


def cached_graphs(loaded: LoadedConfig, plan: CompilePlan, options: CompileOptions) -> list[bool]:
    """Return for each graph of a plan, in order, whether it is in the compile cache."""
    # Opening a cache would create it.
    if not options.cache_dir.is_dir():
        return [False] * len(plan.buckets.all)
    specs = graph_specs(loaded, plan)
    try:
        backend = options.backend(plan)
    except ArtifactError:
        # What is not installed here can be planned for; whether it would be cached depends on it.
        return [False] * len(specs)
    return backend.cached_graphs(specs, options.cache_dir)


def render_plan(plan: CompilePlan, is_cached: Sequence[bool]) -> str:
    """Return the table of graphs, and below it what running them takes."""
    ranges = bucket_ranges(plan.buckets)
    memory = plan.memory
    rows = [
        [
            graph.name,
            ranges[bucket].description,
            shown_bytes(graph.activation_bytes),
            *([] if plan.neuron is None else _code(graph)),
            "cached" if cached else "to build",
        ]
        for bucket, graph, cached in zip(plan.buckets.all, memory.graphs, is_cached, strict=True)
    ]
    columns = ["graph", "serves", "activations", "state"]
    if plan.neuron is not None:
        columns[3:3] = ["instructions", "code"]
    num_cached = sum(is_cached)
    times = f", one copy for each of {memory.num_copies} graphs" if memory.num_copies > 1 else ""
    sharing = times.removeprefix(", ") or "shared by all graphs"
    lines = [
        render_table(columns, rows, num_text_columns=2),
        "",
        f"{len(rows)} graphs: {num_cached} cached, {len(rows) - num_cached} to build",
        f"weights      {shown_bytes(memory.weights_bytes)} ({plan.dtype}, {sharing})",
        f"KV cache     {shown_bytes(memory.kv_cache_bytes)}{times}",
        f"             = {memory.kv_cache_formula}",
        f"activations  {shown_bytes(memory.activation_bytes)} (of the largest graph)",
        *([] if plan.neuron is None else [_code_line(memory)]),
        f"total        {shown_bytes(memory.total_bytes)}",
        *([] if plan.neuron is None else _device_lines(plan.neuron)),
    ]
    return "\n".join(lines)


def _code(graph: GraphMemory) -> list[str]:
    assert graph.num_instructions is not None and graph.code_bytes is not None, "estimated"
    return [f"~{graph.num_instructions / 10**6:.2f} M", shown_bytes(graph.code_bytes)]


def _code_line(memory: MemoryPlan) -> str:
    return (
        f"code         {shown_bytes(memory.code_bytes)}"
        " (of all graphs, with micro-code; instructions are an estimate, of which neuronx-cc is"
        f" reported to take {MAX_INSTRUCTIONS // 10**6} M a graph)"
    )


def _device_lines(neuron: NeuronPlan) -> list[str]:
    device = _device(neuron)
    usable = f"{shown_bytes(device.usable_bytes)} of {shown_bytes(device.total_bytes)}"
    return [
        f"device       {usable} to use on a logical core of {device.target}",
        f"binding      {neuron.binding}",
    ]


def _device(neuron: NeuronPlan) -> DeviceMemory:
    return DeviceMemory(neuron.target, neuron.logical_nc_config)


def plan_json(plan: CompilePlan, is_cached: Sequence[bool]) -> dict[str, Any]:
    """Return the same for machines."""
    ranges = bucket_ranges(plan.buckets)
    memory = plan.memory
    return {
        "schema_version": 1,
        "name": plan.name,
        "backend": plan.backend,
        "dtype": plan.dtype,
        "graphs": [
            {
                "graph": graph.name,
                **ranges[bucket].to_json(),
                "activation_bytes": graph.activation_bytes,
                "num_instructions": graph.num_instructions,
                "code_bytes": graph.code_bytes,
                "is_cached": cached,
            }
            for bucket, graph, cached in zip(
                plan.buckets.all, memory.graphs, is_cached, strict=True
            )
        ],
        "weights_bytes": memory.weights_bytes,
        "kv_cache_bytes": memory.kv_cache_bytes,
        "kv_cache_formula": memory.kv_cache_formula,
        "activation_bytes": memory.activation_bytes,
        "num_copies": memory.num_copies,
        "code_bytes": memory.code_bytes,
        "binding": None if plan.neuron is None else plan.neuron.binding,
        "usable_bytes": None if plan.neuron is None else _device(plan.neuron).usable_bytes,
        "total_bytes": memory.total_bytes,
        "warnings": list(plan.warnings),
    }
