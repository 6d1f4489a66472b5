"""KV caches that live in the graphs: each graph owns one, and the last one that ran is right.

Separately traced modules share no state. What the documented interface offers is copying their
parameters, through the host. So whenever a step runs another graph than the last one did, the
whole cache moves; how often and how much is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from neuron_llm.backends.state_transfers import StateTransfers
from neuron_llm.scheduler.buckets import Bucket


class KVStates:
    """The KV caches of all graphs of a session.

    Args:
        states: of each graph, K and V of layer 0, of layer 1 and so on.

    Attributes:
        transfers: what has moved so far.
    """

    def __init__(self, states: Mapping[Bucket, Sequence[torch.Tensor]]) -> None:
        self.transfers = StateTransfers()
        self._states = states
        self._holder: Bucket | None = None
        self._on_host: list[torch.Tensor] | None = None

    def bring_to(self, bucket: Bucket) -> None:
        """Let a graph have the cache as the last one left it, before it runs."""
        if self._on_host is not None:
            self._copy(self._on_host, self._states[bucket])
        elif self._holder is not None and self._holder != bucket:
            self._copy(self._states[self._holder], self._states[bucket])

    def left_in(self, bucket: Bucket) -> None:
        """Note that a graph has run and has the cache now."""
        self._holder = bucket
        if self._on_host is not None:
            self._copy(self._states[bucket], self._on_host)

    def on_host(self) -> list[torch.Tensor]:
        """Return the cache on the host, to be read and written between steps.

        From then on it goes to every graph before it runs, and comes back afterwards: this is for
        looking into the cache, not for serving.
        """
        if self._on_host is None:
            holder = self._holder or next(iter(self._states))
            self._on_host = [torch.zeros_like(s, device="cpu") for s in self._states[holder]]
            self._copy(self._states[holder], self._on_host)
        return self._on_host

    def _copy(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
        self.transfers.num_copies += 1
        self.transfers.num_bytes += sum(source.nbytes for source in sources)
