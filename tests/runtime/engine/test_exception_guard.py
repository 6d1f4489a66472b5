"""A guard answers the exceptions of its block, and no others, at once or never."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.exception_guard import ExceptionGuard


@pytest.mark.parametrize(
    ("error", "num_calls"),
    [(KeyboardInterrupt(), 1), (ValueError(), 1), (RequestError("no", code="empty_prompt"), 0)],
)
def test_an_exception_is_answered_unless_it_is_harmless(
    error: BaseException, num_calls: int
) -> None:
    calls: list[None] = []
    with pytest.raises(type(error)), ExceptionGuard(lambda: calls.append(None), RequestError):
        raise error
    assert len(calls) == num_calls


def test_a_block_that_ends_well_is_not_answered() -> None:
    calls: list[None] = []
    with ExceptionGuard(lambda: calls.append(None)):
        pass
    assert calls == []


def test_an_interrupt_behind_the_block_is_never_answered_later() -> None:
    calls: list[None] = []

    def interrupt_on_exit(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and frame.f_code.co_name == "__exit__":
            raise KeyboardInterrupt

    def run() -> None:
        with ExceptionGuard(lambda: calls.append(None)):
            pass

    before = sys.gettrace()
    sys.settrace(interrupt_on_exit)
    try:
        run()
    except KeyboardInterrupt:
        sys.settrace(before)
    # The exception, and with it every frame that it went through, is gone by now.
    assert calls == []
