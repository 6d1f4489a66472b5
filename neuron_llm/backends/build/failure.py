"""Why a build failed, in words that lead to a way out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals

from neuron_llm.errors import CompileError
from neuron_llm.quantities import KIB, MIB

# What stands in the log when the kernel has killed a compiler below the process that builds.
_KILLED_PROGRAM = re.compile(
    rb"Killed signal terminated program"  # g++, of the compiler proper that it started.
    rb"|neuronx-cc failed with -9\b"  # torch_neuronx, of neuronx-cc.
    rb"|neuronx-cc was forcibly killed"  # neuronx-cc, of a part of its own.
)
_LOG_TAIL_BYTES = 4 * KIB


class GraphBuildError(CompileError):
    """Graphs did not build; the others are in the cache.

    Args:
        message: names each graph with the reason and the log.
        retry_options: what to add to the same command when it is given again.
    """

    def __init__(self, message: str, *, retry_options: tuple[str, ...]) -> None:
        added = f" with `{' '.join(retry_options)}`" if retry_options else ""
        super().__init__(
            message,
            hint="the other graphs are in the cache; run the same command again"
            f"{added} to build the rest",
        )
        self.retry_options = retry_options


@dataclass(frozen=True)
class BuildFailure:
    """One graph that did not build.

    Attributes:
        graph: its name.
        exit_code: of its process, the negative number of the signal that ended it.
        log: what it printed.
        memory_bytes: what it and its compilers held when they were last looked at.
        timeout_s: the limit that it ran into, or None.
    """

    graph: str
    exit_code: int
    log: Path
    memory_bytes: int
    timeout_s: float | None = None

    @property
    def was_killed(self) -> bool:
        """Whether something else ended it or the compiler that it started: mostly the kernel."""
        is_kill = self.exit_code == -SIGKILL or _KILLED_PROGRAM.search(_tail(self.log)) is not None
        return is_kill and self.timeout_s is None

    @property
    def text(self) -> str:
        """The graph, the reason and the log, which a process opens first of all."""
        if self.exit_code > 0 and not self.log.exists():
            return (
                f"{self.graph}: its process ended before it began to build; a script that compiles"
                ' is a file, and does so below `if __name__ == "__main__":`'
            )
        return f"{self.graph}: {self._reason}; log: {self.log}"

    @property
    def _reason(self) -> str:
        if self.timeout_s is not None:
            return (
                f"the compiler was ended after {self.timeout_s:g} s, the limit of `--timeout`;"
                " give it more, or try a smaller bucket"
            )
        if self.was_killed:
            mebibytes = self.memory_bytes // MIB
            held = f" (it held {mebibytes} MiB when last looked at)" if mebibytes else ""
            return (
                f"the compiler was killed, probably for want of host memory{held};"
                " try fewer `--jobs` or a smaller bucket"
            )
        if self.exit_code < 0:
            return f"the compiler ended by signal {Signals(-self.exit_code).name}"
        return f"the compiler ended with exit code {self.exit_code}"


def build_error(failures: Sequence[BuildFailure], num_tasks: int) -> GraphBuildError:
    """Return the one error for every failure of a request of `num_tasks` graphs."""
    return GraphBuildError(
        f"{len(failures)} of {num_tasks} graphs did not compile: "
        + "; ".join(failure.text for failure in failures),
        retry_options=("--jobs", "1") if any(f.was_killed for f in failures) else (),
    )


def _tail(log: Path) -> bytes:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            return file.read()
    except FileNotFoundError:
        return b""
