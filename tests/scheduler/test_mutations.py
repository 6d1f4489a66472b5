"""The judge bites: each fault that a holdback scheduler can have is found by some stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streams import run_stream

from neuron_llm.errors import NeuronLLMError
from neuron_llm.scheduler import (
    EngineCoreOutput,
    ModelRunnerOutput,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Request,
    SchedulerOutput,
)
from neuron_llm.scheduler import kv_cache_manager as kv_cache_manager_module
from neuron_llm.scheduler.block_pool import BlockPool
from neuron_llm.scheduler.kv_cache_manager import KVCacheManager
from neuron_llm.scheduler.policy.admission import KVAdmission

NUM_STREAMS = 300


def find_fault(scheduler_class: type[NeuronScheduler], **changes: Any) -> Exception:
    """Return the first verdict against a scheduler; fail if every stream accepts it."""
    for seed in range(NUM_STREAMS):
        try:
            run_stream(seed, scheduler_class, **changes)
        except (AssertionError, NeuronLLMError, RuntimeError, KeyError) as verdict:
            return verdict
    pytest.fail(f"{NUM_STREAMS} streams found nothing")


@pytest.mark.parametrize(
    "hash_of",
    [
        lambda parent, token_ids, salt: b"equal",
        lambda parent, token_ids, salt: bytes(token_ids),
        lambda parent, token_ids, salt: (parent or b"") + b".",
        lambda parent, token_ids, salt: (parent or b"") + bytes(token_ids[1:]),
    ],
    ids=["all equal", "without what came before", "without the tokens", "without one token"],
)
def test_equal_block_hashes_put_foreign_tokens_into_slots(
    monkeypatch: pytest.MonkeyPatch, hash_of: Callable[..., bytes]
) -> None:
    monkeypatch.setattr(kv_cache_manager_module, "hash_block", hash_of)
    verdict = str(find_fault(NeuronScheduler, enable_prefix_caching=True))
    assert "wrong KV slot" in verdict or "a block twice" in verdict


def test_a_bound_that_counts_the_null_block_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    original = KVAdmission.__init__

    def count_null_block(self: KVAdmission, config: Any, kv: Any) -> None:
        original(self, config, kv)
        blocks_per_seq = -(-config.max_model_len // config.block_size)
        self.max_concurrent = config.num_blocks // blocks_per_seq

    monkeypatch.setattr(KVAdmission, "__init__", count_null_block)
    # An exact multiple of the two blocks that a request of 32 tokens takes.
    exact = {"max_model_len": 32, "block_size": 16, "num_blocks": 4}
    verdict = find_fault(NeuronScheduler, kv_admission="max_model_len", **exact)
    assert "nothing can be scheduled" in str(verdict) or "cannot grow" in str(verdict)


@pytest.mark.parametrize("scheduler_class", [NeuronScheduler, NeuronAsyncScheduler])
def test_an_admission_one_block_short_runs_out(
    monkeypatch: pytest.MonkeyPatch, scheduler_class: type[NeuronScheduler]
) -> None:
    original = KVAdmission.promised_blocks
    monkeypatch.setattr(
        KVAdmission, "promised_blocks", lambda self, running: original(self, running) - 1
    )
    verdict = find_fault(scheduler_class, kv_admission="reserve")
    assert "nothing can be scheduled" in str(verdict) or "cannot grow" in str(verdict)


def test_a_shared_block_counted_free_of_charge_while_nobody_holds_it_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        KVCacheManager, "cached_in_use", lambda self, r: len(self.get_computed_blocks(r))
    )
    verdict = find_fault(NeuronScheduler, kv_admission="reserve")
    assert "nothing can be scheduled" in str(verdict) or "cannot grow" in str(verdict)


class ForgetsHiddenRunning(NeuronScheduler):
    def _hide_other_phase(self) -> None:
        super()._hide_other_phase()
        self._running_holdback = []


class ForgetsHeldWaiting(NeuronScheduler):
    def _restore_waiting(self) -> None:
        self.holdback_queue.clear()
        super()._restore_waiting()


class RestoresInReverse(NeuronScheduler):
    def _hide_other_phase(self) -> None:
        super()._hide_other_phase()
        before, behind = self._prefill_holdback, self._running_holdback
        self._running_holdback, self._prefill_holdback = before, behind


class CountsPadding(NeuronScheduler):
    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        counts = scheduler_output.num_scheduled_tokens
        if self._is_prefill_step(scheduler_output):
            padded = {i: self._calculate_padded_count(n) for i, n in counts.items()}
            scheduler_output.num_scheduled_tokens = padded
        super()._update_after_schedule(scheduler_output)
        scheduler_output.num_scheduled_tokens = counts


class MixesPhases(NeuronScheduler):
    def _hide_other_phase(self) -> None:
        pass


class IgnoresHiddenSlots(NeuronScheduler):
    @property
    def at_capacity(self) -> bool:
        return False

    def _limit_step(self, num_hidden: int) -> None:
        pass


class LetsTheSmallestFirst(NeuronScheduler):
    def _admit_from_holdback(self) -> None:
        self.holdback_queue = type(self.holdback_queue)(
            sorted(self.holdback_queue, key=lambda request: request.num_prompt_tokens)
        )
        super()._admit_from_holdback()


class ForgetsPlaceholders(NeuronAsyncScheduler):
    def schedule(self) -> SchedulerOutput:
        # As if another token were always to come, past the last one that is allowed.
        requests = list(self.requests.values())
        for request in requests:
            request.max_num_tokens += 1
        output = super().schedule()
        for request in requests:
            request.max_num_tokens -= 1
        return output


class TrustsIds(NeuronAsyncScheduler):
    """Takes a late token for whoever has the id now, and not for the request it was sampled for."""

    def update_from_output(
        self, scheduler_output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> list[EngineCoreOutput]:
        if self._in_flight and scheduler_output.num_scheduled_tokens:
            output, requests = self._in_flight[0]
            requests = [self.requests.get(r.request_id, r) for r in requests]
            self._in_flight[0] = output, requests
        return super().update_from_output(scheduler_output, runner_output)


@pytest.mark.parametrize(
    ("scheduler_class", "verdict"),
    [
        (ForgetsHiddenRunning, ""),
        (ForgetsHeldWaiting, ""),
        (RestoresInReverse, "overtaken"),
        (CountsPadding, ""),
        (MixesPhases, "one prefill or only decodes"),
        (IgnoresHiddenSlots, ""),
        (LetsTheSmallestFirst, "overtaken"),
        (ForgetsPlaceholders, ""),
        (TrustsIds, ""),
    ],
)
def test_a_broken_scheduler_is_found(scheduler_class: type[NeuronScheduler], verdict: str) -> None:
    assert verdict in str(find_fault(scheduler_class))


def _touch_without_taking(self: BlockPool, block_ids: Any) -> None:
    for block_id in block_ids:
        self._ref_counts[block_id] += 1


def _allocate_without_forgetting(self: BlockPool, num_blocks: int) -> list[int]:
    block_ids = [self._free.popitem(last=False)[0] for _ in range(num_blocks)]
    for block_id in block_ids:
        self._ref_counts[block_id] = 1
    return block_ids


@pytest.mark.parametrize(
    ("method", "broken"),
    [("touch", _touch_without_taking), ("allocate", _allocate_without_forgetting)],
)
def test_a_broken_block_pool_is_found(
    monkeypatch: pytest.MonkeyPatch, method: str, broken: Callable[..., Any]
) -> None:
    monkeypatch.setattr(BlockPool, method, broken)
    monkeypatch.setattr(BlockPool, "check_integrity", lambda self: None)
    find_fault(NeuronScheduler)


def test_blocks_that_are_never_freed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCacheManager, "free", lambda self, request: None)
    find_fault(NeuronScheduler)


def test_a_hit_on_the_whole_prompt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = KVCacheManager.get_computed_blocks

    def hit_all(self: KVCacheManager, request: Request) -> list[int]:
        request.num_tokens += 1
        try:
            return original(self, request)
        finally:
            request.num_tokens -= 1

    monkeypatch.setattr(KVCacheManager, "get_computed_blocks", hit_all)
    find_fault(NeuronScheduler)
