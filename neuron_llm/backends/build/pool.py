"""Build graphs in parallel, each in a process of its own.

A build that fails or is killed takes no other with it: it is tried once more when the rest is done,
and then reported with its log. One that takes too long is ended, and not tried again. Processes are
forked from a server that has imported the heavy libraries once. Each leads a process group of its
own, which takes the C++ compiler with it when it is ended, and ends itself when the process that
asked for the build is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGKILL
from typing import Any

from neuron_llm.backends.build.failure import BuildFailure, build_error
from neuron_llm.backends.protocol import BuildEvent, BuildListener, BuildStatus

MAX_ATTEMPTS = 2
# How often running builds are looked at: what memory they hold, and whether their time is up.
_POLL_S = 1.0
# Of `/proc/<pid>/stat`, counted behind the name, which is in brackets and may contain spaces.
_GROUP_FIELD = 2
_RESIDENT_PAGES_FIELD = 21


@dataclass
class BuildTask:
    """One graph to build.

    Attributes:
        graph: its name.
        target: a module-level function; it succeeds by returning.
        args: its arguments, picklable.
        log: takes what the process prints.
    """

    graph: str
    target: Callable[..., None]
    args: tuple[Any, ...]
    log: Path
    attempts: int = field(default=0, init=False)


@dataclass
class _Running:
    task: BuildTask
    process: BaseProcess
    started: float
    memory_bytes: int = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started


def build_all(
    tasks: Sequence[BuildTask],
    *,
    num_jobs: int,
    preload: Sequence[str],
    on_event: BuildListener,
    timeout_s: float | None = None,
) -> None:
    """Run every task, at most `num_jobs` at a time.

    Args:
        tasks: the graphs to build.
        num_jobs: processes at the same time.
        preload: modules that the fork server imports before the first fork.
        on_event: told of every start, end and retry.
        timeout_s: seconds after which a build is ended, with every compiler that it started.

    Raises:
        GraphBuildError: at least one task failed twice, or took too long; all others are done.
    """
    pool = _Pool(preload, on_event, timeout_s)
    try:
        failures = pool.run(deque(tasks), num_jobs)
    finally:
        pool.close()
    if failures:
        raise build_error(failures, len(tasks))


class _Pool:
    """The processes of one call of `build_all`."""

    def __init__(
        self, preload: Sequence[str], on_event: BuildListener, timeout_s: float | None
    ) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        self._on_event = on_event
        self._timeout_s = timeout_s
        self._running: dict[int, _Running] = {}
        # Builders read from it and never get anything: its end tells that this process has ended.
        self._lifeline, self._ours = self._context.Pipe(duplex=False)

    def run(self, waiting: deque[BuildTask], num_jobs: int) -> list[BuildFailure]:
        """Build all that waits; return what failed for good."""
        failures = []
        while waiting or self._running:
            while waiting and len(self._running) < num_jobs:
                self._start(waiting.popleft())
            for ended in self._wait():
                failure = self._failure(ended)
                if failure is None:
                    status: BuildStatus = "built"
                elif failure.timeout_s is None and ended.task.attempts < MAX_ATTEMPTS:
                    status = "retried"
                    waiting.append(ended.task)
                else:
                    status = "failed"
                    failures.append(failure)
                self._on_event(BuildEvent(ended.task.graph, status, ended.seconds))
        return failures

    def close(self) -> None:
        """End whatever still runs."""
        for unfinished in self._running.values():
            _kill(unfinished.process)
        self._ours.close()
        self._lifeline.close()

    def _start(self, task: BuildTask) -> None:
        task.attempts += 1
        process = self._context.Process(target=_run, args=(task, self._lifeline))
        process.start()
        self._running[process.sentinel] = _Running(task, process, time.perf_counter())
        self._on_event(BuildEvent(task.graph, "started"))

    def _wait(self) -> list[_Running]:
        """Wait a moment; return what has ended, by itself or because its time is up."""
        ended = set(wait(list(self._running), timeout=_POLL_S))
        for sentinel, running in self._running.items():
            if sentinel in ended:
                running.process.join()
            elif self._timeout_s is not None and running.seconds >= self._timeout_s:
                _kill(running.process)
                ended.add(sentinel)
            else:
                assert running.process.pid is not None
                running.memory_bytes = group_memory_bytes(running.process.pid)
        return [
            self._running.pop(sentinel) for sentinel in list(self._running) if sentinel in ended
        ]

    def _failure(self, ended: _Running) -> BuildFailure | None:
        exit_code = ended.process.exitcode
        assert exit_code is not None, "it has ended"
        if exit_code == 0:
            return None
        is_late = self._timeout_s is not None and ended.seconds >= self._timeout_s
        return BuildFailure(
            graph=ended.task.graph,
            exit_code=exit_code,
            log=ended.task.log,
            memory_bytes=ended.memory_bytes,
            timeout_s=self._timeout_s if is_late and exit_code == -SIGKILL else None,
        )


def group_memory_bytes(process_group: int) -> int:
    """Return the resident memory of every process of a group; what they share counts for each."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # It has ended meanwhile.
        if int(fields[_GROUP_FIELD]) == process_group:
            pages += int(fields[_RESIDENT_PAGES_FIELD])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, SIGKILL)
    # It leads no group yet if it has only just begun.
    process.kill()
    process.join()


def _end_with(lifeline: Connection) -> None:
    """Wait for the end of the process that holds the other end, and end this group with it."""
    wait([lifeline])
    os.killpg(0, SIGKILL)


def _run(task: BuildTask, lifeline: Connection) -> None:
    """Run in the child: everything printed, by the compiler too, goes to the log."""
    os.setpgid(0, 0)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    with task.log.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
        try:
            task.target(*task.args)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            # The log has the report; what the libraries opened for processes is given back.
            sys.exit(1)
