"""A double of neuronx_distributed: the documented interface of ModelBuilderV2, strictly.

Written from AWS's documentation; nothing in it comes from the package. It computes on the host,
with one rank, and refuses whatever the page does not promise, so that code that passes here asks
for no more. It says nothing about what the compiler accepts, the device's numerics or its speed.

Page: "ModelBuilderV2 API Reference" of NxD Core. Comments name its sections.
"""

from __future__ import annotations

from neuronx_distributed.checkpoint import shard_checkpoint
from neuronx_distributed.parallel_state import NxDParallelState
from neuronx_distributed.trace.model_builder import ModelBuilder
from neuronx_distributed.trace.nxd_model.nxd_model import NxDModel

__version__ = "0.19.28492+double"
__all__ = ["ModelBuilder", "NxDModel", "NxDParallelState", "shard_checkpoint"]
