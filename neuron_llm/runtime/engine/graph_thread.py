"""A thread that runs what it is handed, in order, and survives interrupts of whoever waits for it.

Ctrl-C may raise between any two instructions of the main thread. In the locks of
`concurrent.futures`, which are written in Python, it can leave one held for ever, and then neither
thread goes on. The queues here are written in C: a call of them is done or has not begun.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import torch

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Raised:
    error: BaseException


class HandedOver(Generic[Result]):
    """A call that a `GraphThread` will run, runs or has run.

    Args:
        function: what to call.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._outcome: SimpleQueue[Result | _Raised] = SimpleQueue()

    def run(self) -> None:
        """Call the function, whatever it raises; once."""
        try:
            self._outcome.put(self._function())
        except BaseException as error:
            self._outcome.put(_Raised(error))

    def result(self) -> Result:
        """Wait, and return what the function returned, or raise what it raised; once."""
        outcome = self._outcome.get()
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome


class GraphThread:
    """The thread. It ends with this object; what it runs at the end of the process is waited for.

    It has as many OpenMP threads as torch was given: a graph calls OpenMP without torch, and OpenMP
    keeps that number for each thread that calls it.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[HandedOver[Any] | None] = SimpleQueue()
        arguments = (self._calls, torch.get_num_threads())
        # A daemon, since Python would wait for any other thread before it lets us end it.
        thread = threading.Thread(target=_work, args=arguments, name="graph", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._calls, thread)

    def hand_over(self, function: Callable[[], Result]) -> HandedOver[Result]:
        """Let the thread call a function, after all that it was handed before."""
        call = HandedOver(function)
        self._calls.put(call)
        return call


def _work(calls: SimpleQueue[HandedOver[Any] | None], num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    while True:
        call = calls.get()
        if call is None:
            return
        call.run()
        # It may hold the last reference to the engine, and with it to the `GraphThread`.
        del call


def _end(calls: SimpleQueue[HandedOver[Any] | None], thread: threading.Thread) -> None:
    calls.put(None)
    if thread is not threading.current_thread():
        thread.join()
