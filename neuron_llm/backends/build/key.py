"""The second-level cache key of a graph: what it computes, whatever configuration asked for it."""

from __future__ import annotations

from typing import Any

import torch

from neuron_llm.backends.build.cache import content_key


def exported_key(exported: torch.export.ExportedProgram, flags: Any) -> str:
    """Return the content address of an exported graph: its operators, shapes, names and flags."""
    nodes = [
        [node.op, str(node.target), str(node.args), str(node.kwargs), _meta(node.meta.get("val"))]
        for node in exported.graph.nodes
    ]
    return content_key([nodes, str(exported.graph_signature), flags])


def _meta(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.stride()} {value.dtype}"
    return str(type(value))
