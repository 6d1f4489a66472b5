"""The schedulers that the engine runs: the holdback logic over our own base schedulers."""

from __future__ import annotations

from neuron_llm.scheduler.async_scheduler import AsyncScheduler
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.holdback import HoldbackMixin
from neuron_llm.scheduler.scheduler import Scheduler


class NeuronScheduler(HoldbackMixin, Scheduler):
    """Schedules one prefill chunk or a batch of decodes per step, never both, without preemption.

    Args:
        config: the limits.

    Raises:
        ConfigError: `kv_admission` is `max_model_len` and not one request of that length fits.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._init_holdback(config, self.kv_cache_manager)

    _call_base_schedule = Scheduler.schedule

    def _has_steps_in_flight(self) -> bool:
        return bool(self._in_flight)


class NeuronAsyncScheduler(NeuronScheduler, AsyncScheduler):
    """The same, planning each step while the one before it runs."""

    _call_base_schedule = AsyncScheduler.schedule
