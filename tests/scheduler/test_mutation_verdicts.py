"""By which check the judge finds each fault: the first verdict names its line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from streams import BOTH_CLASSES
from test_mutations import (
    CountsPadding,
    ForgetsHeldWaiting,
    ForgetsHiddenRunning,
    IgnoresHiddenSlots,
    LetsTheSmallestFirst,
    RestoresInReverse,
    find_fault,
)

from neuron_llm.errors import NoProgressError, OutOfBlocksError
from neuron_llm.scheduler import (
    NeuronScheduler,
    Request,
    SchedulerConfig,
    SchedulerOutput,
    kv_cache_manager,
)
from neuron_llm.scheduler.policy import admission
from neuron_llm.scheduler.policy.admission import KVAdmission

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)


def check_that_failed(verdict: Exception) -> str:
    """Return the function whose assertion it was, and the assertion."""
    frame = traceback.extract_tb(verdict.__traceback__)[-1]
    return f"{frame.name}: {frame.line}"


class StepAfterStep(NeuronScheduler):
    """Says nothing when nothing is scheduled: left to itself, a stall would go on for ever."""

    def _check_progress(self, scheduler_output: SchedulerOutput) -> None:
        pass


@EACH_CLASS
@pytest.mark.parametrize("hash_of", [lambda *_: b"equal", lambda _, ids, __: bytes(ids)])
def test_equal_block_hashes_are_found_in_the_slots(
    monkeypatch: pytest.MonkeyPatch,
    scheduler_class: type[NeuronScheduler],
    hash_of: Callable[..., bytes],
) -> None:
    monkeypatch.setattr(kv_cache_manager, "hash_block", hash_of)
    # Hashes that are all equal give one table the same block twice, before anything is read.
    found = check_that_failed(find_fault(scheduler_class, enable_prefix_caching=True))
    assert found.startswith(("_check_slots: ", "_check_table: assert len(set(block_ids))"))


@EACH_CLASS
@pytest.mark.parametrize("num_blocks", [4, 6, 8])
def test_a_bound_with_the_null_block_in_it_is_found_by_a_request_that_cannot_go_on(
    monkeypatch: pytest.MonkeyPatch, scheduler_class: type[NeuronScheduler], num_blocks: int
) -> None:
    original = KVAdmission.__init__

    def count_null_block(self: KVAdmission, config: SchedulerConfig, kv: Any) -> None:
        original(self, replace(config, num_blocks=config.num_blocks + 1), kv)

    monkeypatch.setattr(KVAdmission, "__init__", count_null_block)
    exact = {"max_model_len": 32, "block_size": 16, "num_blocks": num_blocks}
    verdict = find_fault(scheduler_class, kv_admission="max_model_len", **exact)
    assert isinstance(verdict, NoProgressError | OutOfBlocksError)


@EACH_CLASS
def test_a_refusal_that_counts_the_null_block_is_found_when_the_request_is_added(
    monkeypatch: pytest.MonkeyPatch, scheduler_class: type[NeuronScheduler]
) -> None:
    original = admission.check_length

    def count_null_block(request: Request, config: SchedulerConfig) -> None:
        original(request, replace(config, num_blocks=config.num_blocks + 1))

    monkeypatch.setattr(admission, "check_length", count_null_block)
    found = check_that_failed(find_fault(scheduler_class, kv_admission="reserve"))
    assert found == "add: assert refusal is None"


@EACH_CLASS
@pytest.mark.parametrize("method", ["promised_blocks", "worst_case_blocks"])
def test_an_admission_one_block_short_is_found_by_a_request_that_cannot_go_on(
    monkeypatch: pytest.MonkeyPatch, scheduler_class: type[NeuronScheduler], method: str
) -> None:
    original = getattr(KVAdmission, method)
    monkeypatch.setattr(KVAdmission, method, lambda self, of: original(self, of) - 1)
    verdict = find_fault(scheduler_class, kv_admission="reserve")
    assert isinstance(verdict, NoProgressError | OutOfBlocksError)


@EACH_CLASS
def test_no_admission_at_all_is_found_by_a_step_that_schedules_nothing(
    monkeypatch: pytest.MonkeyPatch, scheduler_class: type[NeuronScheduler]
) -> None:
    monkeypatch.setattr(KVAdmission, "has_room", lambda self, request, running: True)
    verdict = find_fault(scheduler_class, kv_admission="reserve")
    assert isinstance(verdict, NoProgressError | OutOfBlocksError)
    # Without that error, a hang.
    assert str(find_fault(StepAfterStep, kv_admission="reserve")) in ("hang", str(verdict))


@pytest.mark.parametrize(
    ("scheduler_class", "check"),
    [
        (ForgetsHiddenRunning, "check_step: assert {r.request_id for r in queued} == set("),
        (ForgetsHeldWaiting, "check_step: assert {r.request_id for r in queued} == set("),
        (RestoresInReverse, 'check_step: assert order == sorted(order), "somebody was overtaken"'),
        (LetsTheSmallestFirst, 'check_step: assert order == sorted(order), "somebody was over'),
        (IgnoresHiddenSlots, "check_step: assert len(scheduler.running) <= "),
    ],
)
def test_a_fault_of_the_queues_is_found_by_its_own_check(
    scheduler_class: type[NeuronScheduler], check: str
) -> None:
    assert check_that_failed(find_fault(scheduler_class)).startswith(check)


def test_padding_that_counts_as_progress_is_found_by_the_prompt_it_skips() -> None:
    # All of the prompt seems computed, and a token seems to have been sampled: none comes.
    assert isinstance(find_fault(CountsPadding), NoProgressError)
