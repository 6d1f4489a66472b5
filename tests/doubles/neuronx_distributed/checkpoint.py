from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file


def shard_checkpoint(
    checkpoint: Mapping[str, torch.Tensor],
    model: torch.nn.Module,
    start_rank: int | None = None,
    end_rank: int | None = None,
    load_on_device: bool = False,
    serialize_path: str | None = None,
) -> list[dict[str, torch.Tensor]]:
    # shard_checkpoint, `start_rank` and `end_rank`: both lie in [0, tp_degree).
    if (start_rank or 0) != 0 or (end_rank or 0) != 0:
        raise ValueError("the double has rank 0 alone")
    # `load_on_device`: needs a Neuron instance.
    if load_on_device:
        raise RuntimeError("the double has no device to load onto")
    # `checkpoint`: "must contain all model parameters".
    missing = [name for name, _ in model.named_parameters() if name not in checkpoint]
    if missing:
        raise ValueError(f"the checkpoint lacks {missing}")
    shard = dict(checkpoint)
    if serialize_path is not None:
        directory = Path(serialize_path)
        directory.mkdir(parents=True, exist_ok=True)
        save_file(shard, directory / "tp0_sharded_checkpoint.safetensors")
    return [shard]
