"""The one KV state of a model on the device, as the host looks into it."""

from __future__ import annotations

from typing import Any

import torch

# One core runs one model, so that there is one rank.
_RANK = 0


class SharedKVState:
    """The KV caches that all graphs of a model share, on the device.

    Args:
        model: an `NxDModel` on the device.
        names: of its buffers: K and V of each layer in turn.
    """

    def __init__(self, model: Any, names: list[str]) -> None:
        self._model = model
        self._names = names
        self._on_host: list[torch.Tensor] | None = None

    def on_host(self) -> list[torch.Tensor]:
        """Return the cache on the host, to be read and written between steps.

        From then on it goes to the device before every step, and comes back afterwards: this is for
        looking into the cache, not for serving.
        """
        if self._on_host is None:
            self._on_host = [
                self._model.read_from_neuron_buffer(name, _RANK) for name in self._names
            ]
        return self._on_host

    def bring_to_device(self) -> None:
        """Let the device have what the host may have written."""
        if self._on_host is not None:
            for name, cache in zip(self._names, self._on_host, strict=True):
                self._model.write_to_neuron_buffer(cache, name, _RANK)

    def bring_back(self) -> None:
        """Let the host see what a step has written."""
        if self._on_host is not None:
            for name, cache in zip(self._names, self._on_host, strict=True):
                cache.copy_(self._model.read_from_neuron_buffer(name, _RANK))
