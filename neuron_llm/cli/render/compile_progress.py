"""The progress of a compile: one line for each graph that is done, and one for what is going on.

On a terminal the latter is a status line with the time that has passed. A log gets a line every so
often instead, so that whoever reads it sees that something is still at work, and on what.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from rich.text import Text

from neuron_llm.backends.protocol import BuildEvent
from neuron_llm.cli.terminal.console import Console

HEARTBEAT_S = 30.0


class CompileProgress:
    """Renders `BuildEvent`s while it is entered.

    Args:
        console: where to.
        num_graphs: graphs of the plan.
        heartbeat_s: seconds between two lines of a log that tell what is going on.

    Attributes:
        num_graphs: graphs of the plan.
        num_cached: graphs that were in the cache.
        num_built: graphs that were built.
        num_verified: graphs that were compared with the model.
    """

    def __init__(
        self, console: Console, num_graphs: int, *, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        self.num_graphs = num_graphs
        self.num_cached = 0
        self.num_built = 0
        self.num_verified = 0
        self._console = console
        # When the build of each graph began; replaced as a whole, since the heartbeat reads it.
        self._building: dict[str, float] = {}
        self._joining_since: float | None = None
        self._status = console.status("planning") if console.shows_progress else None
        self._heartbeat_s = heartbeat_s
        self._is_over = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        """Begin the status line, or the heartbeat if there is no terminal."""
        if self._status is not None:
            self._status.update(_Going(self))
            self._status.start()
        else:
            self._heartbeat.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the status line, and end the heartbeat."""
        self._is_over.set()
        if self._status is not None:
            self._status.stop()
        else:
            self._heartbeat.join()

    def show(self, event: BuildEvent) -> None:
        """Take one event."""
        if event.status == "started":
            self._building = {**self._building, event.graph: time.monotonic()}
            # A log has no line that is written over, so there the start is a line of its own.
            if self._status is None:
                self._console.notice(f"compiling {event.graph}  {self._count}")
        elif event.status == "cached":
            self.num_cached += 1
            self._console.notice(f"cached {event.graph}  {self._count}")
        elif event.status == "verified":
            self.num_verified += 1
        elif event.status == "joining":
            self._joining_since = time.monotonic()
            self._console.notice(f"putting {self.num_graphs} graphs together")
        elif event.status == "joined":
            self._joining_since = None
            self._console.notice(f"put them together in {event.seconds:.1f} s")
        else:
            self._building = {
                graph: began for graph, began in self._building.items() if graph != event.graph
            }
            self._end_build(event)

    def summary(self, seconds: float) -> str:
        """Return what was done, `compiled 3 graphs in 42.1 s, 5/8 cached, 8 verified`."""
        noun = "graph" if self.num_built == 1 else "graphs"
        verified = f", {self.num_verified} verified" if self.num_verified else ""
        return (
            f"compiled {self.num_built} {noun} in {seconds:.1f} s,"
            f" {self.num_cached}/{self.num_graphs} cached{verified}"
        )

    @property
    def _count(self) -> str:
        return f"{self.num_built + self.num_cached}/{self.num_graphs}"

    def _end_build(self, event: BuildEvent) -> None:
        if event.status == "built":
            self.num_built += 1
            self._console.notice(f"built {event.graph} in {event.seconds:.1f} s  {self._count}")
        elif event.status == "retried":
            self._console.warn(
                f"{event.graph} failed after {event.seconds:.1f} s and will be tried once more"
            )
        else:
            self._console.notice(f"failed {event.graph} after {event.seconds:.1f} s")

    @property
    def going_on(self) -> str:
        """What is going on, and for how long: `compiling prefill_t8 (75 s)  1/3`."""
        now = time.monotonic()
        building = [f"{name} ({now - began:.0f} s)" for name, began in self._building.items()]
        if building:
            return f"compiling {', '.join(building)}  {self._count}"
        if self._joining_since is not None:
            return f"putting graphs together ({now - self._joining_since:.0f} s)"
        if self.num_built + self.num_cached < self.num_graphs:
            return f"compiling  {self._count}"
        return f"verifying  {self.num_verified}/{self.num_graphs}"

    def _beat(self) -> None:
        while not self._is_over.wait(self._heartbeat_s):
            self._console.notice(f"still {self.going_on}")


class _Going:
    """What is going on, asked anew whenever the status line is drawn."""

    def __init__(self, progress: CompileProgress) -> None:
        self._progress = progress

    def __rich__(self) -> Text:
        return Text(self._progress.going_on)
