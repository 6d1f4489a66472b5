from __future__ import annotations

from collections.abc import Sequence

import torch

from neuronx_distributed.trace.nxd_model.submodel import Submodel, Weights


class Call:
    """One execution; it happens as late as it may."""

    def __init__(
        self, submodel: Submodel, inputs: Sequence[torch.Tensor], states: Weights, weights: Weights
    ) -> None:
        self._submodel = submodel
        # The caller's own tensors: who writes into them before the call is over is noticed.
        self._inputs = inputs
        self._states = states
        self._weights = weights
        self._outputs: list[torch.Tensor] = []

    def wait(self, in_flight: list[Call]) -> list[torch.Tensor]:
        """Execute what was called before, and this, in the order of the calls."""
        while self in in_flight:
            in_flight.pop(0)._run()
        return self._outputs

    def _run(self) -> None:
        metaneff = self._submodel.metaneff
        with torch.no_grad():
            outputs = self._submodel.program(
                *self._inputs,
                *(self._states[name] for name in metaneff.states),
                *(self._weights[name] for name in metaneff.weights),
            )
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for name, state in zip(metaneff.states, outputs[metaneff.num_results :], strict=True):
            self._states[name].copy_(state)
        self._outputs = [output.clone() for output in outputs[: metaneff.num_results]]


class Reference:
    """An output of an asynchronous call: where it will stand. All that it offers is `cpu()`.

    forward, `forward_mode`, async: references, on which `cpu()` blocks.
    """

    def __init__(self, in_flight: list[Call], call: Call, index: int) -> None:
        self._in_flight = in_flight
        self._call = call
        self._index = index

    def cpu(self) -> torch.Tensor:
        return self._call.wait(self._in_flight)[self._index]
