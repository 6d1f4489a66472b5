"""Artifacts whose graphs give tokens instead of logits, on the CPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from manifest_edits import edit_manifest

from neuron_llm.backends.cpu.session import CpuSession
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.scheduler.buckets import Bucket

Change = Callable[[Bucket, torch.Tensor], torch.Tensor]


def greedy_copy(artifact: Path, directory: Path, **settings: object) -> Path:
    """Return a copy of an artifact whose manifest says that its graphs give tokens."""
    copy = Path(shutil.copytree(artifact, directory))
    fields = {"samples_greedily": True, **settings}
    edit_manifest(copy, lambda manifest: manifest["settings"].update(fields))
    return copy


def let_graphs_sample(monkeypatch: pytest.MonkeyPatch, change: Change | None = None) -> None:
    """Let every CPU graph give `[num_seqs]` int32 as a graph does that samples.

    Args:
        monkeypatch: of the test.
        change: what to make of the tokens of a call.
    """
    run = CpuSession.execute

    def execute(self: CpuSession, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        tokens = run(self, bucket, inputs).argmax(dim=-1).to(torch.int32)
        return tokens if change is None else change(bucket, tokens)

    monkeypatch.setattr(CpuSession, "execute", execute)
