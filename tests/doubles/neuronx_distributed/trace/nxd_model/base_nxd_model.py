from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch


class StateInitializer(torch.nn.Module):
    """States on the device, zero."""

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        dtypes: Mapping[str, torch.dtype],
        local_ranks_size: int,
    ) -> None:
        super().__init__()
        if local_ranks_size != 1 or shapes.keys() != dtypes.keys():
            raise ValueError("one rank, and a dtype for every shape")
        self.shapes = {name: list(shape) for name, shape in shapes.items()}
        self.dtypes = dict(dtypes)

    def forward(self) -> list[dict[str, torch.Tensor]]:
        return [{name: torch.zeros(s, dtype=self.dtypes[name]) for name, s in self.shapes.items()}]
