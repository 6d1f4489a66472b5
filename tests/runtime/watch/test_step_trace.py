from __future__ import annotations

import pytest

from neuron_llm.runtime.watch.step_trace import Span, Stopwatch


def test_a_stopwatch_keeps_what_ended_well() -> None:
    ticks = iter(range(10))
    stopwatch = Stopwatch(lambda: float(next(ticks)))
    with stopwatch.time("first"):
        pass
    with pytest.raises(ValueError, match="no"), stopwatch.time("second"):
        raise ValueError("no")
    with stopwatch.time("third"):
        pass
    assert stopwatch.spans == [Span("first", 0.0, 1.0), Span("third", 3.0, 4.0)]
