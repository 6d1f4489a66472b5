"""What a configuration would make of a workload: the real scheduler on a clock of its own.

Requests come when the trace says, the scheduler that serves them is the engine's, and each step
takes the time of its graph. Only the model is missing: a request gets as many tokens as the trace
says it generated. Steps follow one another as in the engine, so that the same requests give the
same steps. With `async_scheduling`, a step is scheduled when the one before it begins; a request
that came later than that waits for the next one. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.simulate.decode_occupancy import DecodeOccupancy, StallWatch
from neuron_llm.report.simulate.simulated_step import SimulatedStep, StepMaker
from neuron_llm.report.simulate.simulation import Simulation, TokenTimes
from neuron_llm.report.simulate.timeline import Load, Timeline
from neuron_llm.report.step_time.step_times import StepTimes
from neuron_llm.report.workload.arrivals import Arrivals, LiveRequest
from neuron_llm.report.workload.workload import Workload
from neuron_llm.runtime.batch.distribution import Distribution
from neuron_llm.runtime.batch.metrics import RunMetrics
from neuron_llm.scheduler import NeuronAsyncScheduler, NeuronScheduler
from neuron_llm.scheduler.step_record import StepRecord


def simulate(
    workload: Workload,
    candidate: Candidate,
    step_times: StepTimes,
    on_step: Callable[[StepRecord], None] | None = None,
) -> Simulation:
    """Run a workload to its end. The same arguments give the same result.

    Args:
        workload: the requests.
        candidate: limits and graphs.
        step_times: what a step of each graph takes.
        on_step: told of each step, as the engine tells of its own.

    Raises:
        NeuronLLMError: nobody can say what a step of one of the graphs takes.
        NoBucketError: a step has no graph.
        ConfigError: not one request of `max_model_len` fits, where admission demands it.
    """
    return _Run(workload, candidate, step_times, on_step).run()


class _Run:
    """One run, from the first arrival to the last token."""

    def __init__(
        self,
        workload: Workload,
        candidate: Candidate,
        step_times: StepTimes,
        on_step: Callable[[StepRecord], None] | None,
    ) -> None:
        self._workload, self._candidate, self._on_step = workload, candidate, on_step
        config = candidate.scheduler
        if workload.trace.block_size is None:
            # Nothing is known to be shared, and looking for it takes time.
            config = replace(config, enable_prefix_caching=False)
        scheduler_class = NeuronAsyncScheduler if candidate.async_scheduling else NeuronScheduler
        self._scheduler: NeuronScheduler = scheduler_class(config)
        buckets = candidate.buckets
        self._step_times = {bucket: step_times.step_time(bucket) for bucket in buckets.all}
        seconds = {bucket: time.seconds for bucket, time in self._step_times.items()}
        assert all(time > 0 for time in seconds.values()), "a step takes time"
        self._steps = StepMaker(buckets, seconds)
        self._arrivals = Arrivals(workload, config)
        self._now_s = 0.0
        self._ahead: SimulatedStep | None = None
        self._live: dict[str, LiveRequest] = {}
        self._times = TokenTimes()
        self._metrics, self._queue_ms = RunMetrics(), Distribution()
        self._account = PaddingAccount(buckets.all)
        self._occupancy, self._stalls, self._timeline = DecodeOccupancy(), StallWatch(), Timeline()
        self._num_cut_outputs = 0

    def run(self) -> Simulation:
        """Run to the end."""
        while (step := self._next_step()) is not None:
            self._begin(step)
            self._now_s += step.record.seconds
            self._end(step)
        return Simulation(
            candidate=self._candidate,
            step_times=self._step_times,
            is_prefix_caching=self._scheduler.config.enable_prefix_caching,
            duration_s=self._now_s,
            metrics=self._metrics,
            queue_ms=self._queue_ms,
            account=self._account,
            occupancy=self._occupancy,
            longest_stall=self._stalls.longest,
            timeline=self._timeline,
            refused=tuple(self._arrivals.refused),
            num_cut_outputs=self._num_cut_outputs,
            num_assumed_outputs=self._workload.num_assumed,
        )

    def _next_step(self) -> SimulatedStep | None:
        """Return the step that begins now, or when the next request comes; None at the end."""
        while True:
            self._queue_arrivals()
            step = planned = self._plan()
            if self._candidate.async_scheduling:
                step, self._ahead = self._ahead, planned
            if step is not None:
                return step
            if planned is None:
                # Nothing is left to do and nothing on its way.
                arrival_s = self._arrivals.next_arrival_s
                if arrival_s is None:
                    return None
                self._now_s = arrival_s

    def _queue_arrivals(self) -> None:
        for live in self._arrivals.queue(self._scheduler, self._now_s):
            request = live.request
            self._live[request.request_id] = live
            if request.max_tokens > live.output_tokens:
                self._steps.ends[request.request_id] = live.output_tokens

    def _plan(self) -> SimulatedStep | None:
        output = self._scheduler.schedule()
        if not output.num_scheduled_tokens:
            return None
        return self._steps.make(self._scheduler, output)

    def _begin(self, step: SimulatedStep) -> None:
        """Note what there is when a step begins."""
        now_s, ended_s = self._now_s, self._now_s + step.record.seconds
        for new in step.output.scheduled_new_reqs:
            arrival_s = self._live[new.req_id].traced.arrival_s
            self._queue_ms.add((now_s - arrival_s) * 1e3)
        scheduler, pool = self._scheduler, self._scheduler.kv_cache_manager.block_pool
        load = Load(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting) + self._arrivals.num_outside,
            num_used_blocks=pool.num_usable_blocks - pool.num_free_blocks,
        )
        self._timeline.add(now_s, ended_s, load)
        if step.is_prefill:
            self._stalls.add_prefill(now_s, ended_s, self._times.num_decoding)
        else:
            self._stalls.add_decode()
            self._occupancy.add(step.record.num_seqs, step.longest)

    def _end(self, step: SimulatedStep) -> None:
        """Take in what a step gives."""
        if not step.is_prefill:
            self._times.end_decode(self._now_s)
        elif step.is_last_chunk:
            self._times.end_prefill(step.sampled.req_ids[0], self._now_s)
        outputs = self._scheduler.update_from_output(step.output, step.sampled)
        for output in outputs:
            if output.finish_reason is not None:
                self._finish(output.request_id)
        self._account.add(step.record)
        if self._on_step is not None:
            self._on_step(step.record)

    def _finish(self, req_id: str) -> None:
        live = self._live.pop(req_id)
        request = live.request
        self._steps.ends.pop(req_id, None)
        self._num_cut_outputs += request.num_output_tokens < live.output_tokens
        self._metrics.add(
            self._times.finish(request),
            num_prompt_tokens=request.num_prompt_tokens,
            num_cached_tokens=request.num_cached_tokens,
        )
