"""The progress of a compile: one line for each graph that is done, and one for what is going on."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from neuron_llm.backends.protocol import BuildEvent
from neuron_llm.cli.console import Console


class CompileProgress:
    """Renders `BuildEvent`s while it is entered.

    Args:
        console: where to.
        num_graphs: graphs of the plan.

    Attributes:
        num_graphs: graphs of the plan.
        num_cached: graphs that were in the cache.
        num_built: graphs that were built.
        num_verified: graphs that were compared with the model.
    """

    def __init__(self, console: Console, num_graphs: int) -> None:
        self.num_graphs = num_graphs
        self.num_cached = 0
        self.num_built = 0
        self.num_verified = 0
        self._console = console
        self._building: list[str] = []
        self._status = console.status("planning") if console.shows_progress else None

    def __enter__(self) -> Self:
        """Begin the status line, if there is a terminal."""
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the status line."""
        if self._status is not None:
            self._status.stop()

    def show(self, event: BuildEvent) -> None:
        """Take one event."""
        if event.status == "started":
            self._building.append(event.graph)
            # A log has no line that is written over, so there the start is a line of its own.
            if self._status is None:
                self._console.notice(f"compiling {event.graph}  {self._count}")
        elif event.status == "cached":
            self.num_cached += 1
            self._console.notice(f"cached {event.graph}  {self._count}")
        elif event.status == "verified":
            self.num_verified += 1
        else:
            self._building.remove(event.graph)
            self._end_build(event)
        self._update()

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

    def _update(self) -> None:
        if self._status is None:
            return
        if self._building:
            what = f"compiling {', '.join(self._building)}"
        else:
            is_done = self.num_built + self.num_cached == self.num_graphs
            what = "verifying" if is_done else "compiling"
        count = f"{self.num_verified}/{self.num_graphs}" if what == "verifying" else self._count
        self._status.update(f"{what}  {count}")
