"""Counts of real tokens and sizes of tensors stand apart: a change of one is none of the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scheduler_factory import PLAIN_TOKEN_ID, make_request, make_scheduler, run_step, step
from streams import BOTH_CLASSES

from neuron_llm.scheduler import SchedulerOutput, SchedulerState

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)


def assert_apart(output: SchedulerOutput) -> None:
    """Change each of the two dicts, and see that the other stays."""
    counts, padded = output.num_scheduled_tokens, output.num_scheduled_tokens_padded
    assert padded is not None and padded is not counts
    counts_before, padded_before = dict(counts), dict(padded)
    for req_id in counts:
        padded[req_id] += 1
    assert counts == counts_before
    padded.update(padded_before)
    counts.clear()
    assert padded == padded_before
    counts.update(counts_before)


@EACH_CLASS
@pytest.mark.parametrize(
    ("prompt_len", "padded"), [(5, 8), (8, 8), (9, 16), (16, 16)], ids=lambda n: f"{n}"
)
def test_a_prefill_and_its_decodes_have_two_dicts_each(
    scheduler_class: type[Any], prompt_len: int, padded: int
) -> None:
    scheduler = make_scheduler(scheduler_class)
    request = make_request(prompt_len=prompt_len, max_tokens=3)
    scheduler.add_request(request)
    for count, size in ((prompt_len, padded), (1, 1), (1, 1)):
        output = scheduler.schedule()
        assert output.num_scheduled_tokens == {"r0": count}
        assert output.num_scheduled_tokens_padded == {"r0": size}
        assert_apart(output)
        result = run_step(output, scheduler, PLAIN_TOKEN_ID)
        scheduler.update_from_output(output, result)


@EACH_CLASS
def test_decodes_together_have_two_dicts(scheduler_class: type[Any]) -> None:
    scheduler = make_scheduler(scheduler_class)
    for request_id in "abc":
        scheduler.add_request(make_request(request_id, max_tokens=30))
        step(scheduler)
    output = scheduler.schedule()
    assert output.num_scheduled_tokens == {"a": 1, "b": 1, "c": 1}
    assert output.num_scheduled_tokens_padded == {"a": 1, "b": 1, "c": 1}
    assert scheduler.state is SchedulerState.ACTIVE_DECODE
    assert scheduler.last_stats.num_padded_tokens == 3
    assert_apart(output)


@EACH_CLASS
def test_a_step_of_nothing_has_two_dicts(scheduler_class: type[Any]) -> None:
    output = make_scheduler(scheduler_class).schedule()
    assert output.num_scheduled_tokens == output.num_scheduled_tokens_padded == {}
    assert output.num_scheduled_tokens is not output.num_scheduled_tokens_padded


@EACH_CLASS
def test_a_changed_size_moves_no_counter(scheduler_class: type[Any]) -> None:
    scheduler = make_scheduler(scheduler_class)
    request = make_request(max_tokens=3)
    scheduler.add_request(request)
    for num_computed_tokens in (5, 6, 7):
        output = scheduler.schedule()
        output.num_scheduled_tokens_padded["r0"] = 1000
        scheduler.update_from_output(output, run_step(output, scheduler, PLAIN_TOKEN_ID))
        assert request.num_computed_tokens == num_computed_tokens


@EACH_CLASS
def test_what_padding_returns_is_the_step(scheduler_class: type[Any]) -> None:
    """The signature of the scheduler's specification: a subclass may give another output."""

    class Wider(scheduler_class):  # type: ignore[misc]
        def _apply_padding_and_log_stats(self, scheduler_output: SchedulerOutput) -> Any:
            padded = super()._apply_padding_and_log_stats(scheduler_output)
            assert padded is scheduler_output
            sizes = dict.fromkeys(padded.num_scheduled_tokens, 16)
            return replace(padded, num_scheduled_tokens_padded=sizes)

    scheduler = make_scheduler(Wider)
    scheduler.add_request(make_request(prompt_len=5))
    assert scheduler.schedule().num_scheduled_tokens_padded == {"r0": 16}
    assert scheduler.last_stats.num_padded_tokens == 16
