"""Compile and deploy large language models on hardware that runs only static shapes.

`LLM` and `SamplingParams` are imported when they are first used, so that the command line starts
without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuron_llm.version import __version__

if TYPE_CHECKING:
    from neuron_llm.runtime.llm import LLM
    from neuron_llm.runtime.sampling.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from neuron_llm.runtime.llm import LLM

        return LLM
    if name == "SamplingParams":
        from neuron_llm.runtime.sampling.sampling_params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
