"""Build graphs in parallel, each in a process of its own.

A build that fails or is killed takes no other with it: it is tried once more when the rest is done,
and then reported with its log. Processes are forked from a server that has imported the heavy
libraries once. Each leads a process group of its own, which takes the C++ compiler with it when it
is ended, and ends itself when the process that asked for the build is gone.
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
from signal import SIGKILL, Signals
from typing import Any

from neuron_llm.backends.protocol import BuildEvent, BuildListener
from neuron_llm.errors import CompileError

MAX_ATTEMPTS = 2


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


@dataclass(frozen=True)
class _Running:
    task: BuildTask
    process: BaseProcess
    started: float


def build_all(
    tasks: Sequence[BuildTask], *, num_jobs: int, preload: Sequence[str], on_event: BuildListener
) -> None:
    """Run every task, at most `num_jobs` at a time.

    Args:
        tasks: the graphs to build.
        num_jobs: processes at the same time.
        preload: modules that the fork server imports before the first fork.
        on_event: told of every start, end and retry.

    Raises:
        CompileError: at least one task failed twice; all others are done.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    waiting = deque(tasks)
    running: dict[int, _Running] = {}
    failures: list[str] = []
    # Builders read from it and never get anything: its end tells that this process has ended.
    lifeline, ours = context.Pipe(duplex=False)
    try:
        while waiting or running:
            while waiting and len(running) < num_jobs:
                task = waiting.popleft()
                task.attempts += 1
                process = context.Process(target=_run, args=(task, lifeline))
                process.start()
                running[process.sentinel] = _Running(task, process, time.perf_counter())
                on_event(BuildEvent(task.graph, "started"))
            for sentinel in wait(list(running)):
                assert isinstance(sentinel, int)
                ended = running.pop(sentinel)
                ended.process.join()
                exit_code = ended.process.exitcode
                task, seconds = ended.task, time.perf_counter() - ended.started
                if exit_code == 0:
                    on_event(BuildEvent(task.graph, "built", seconds))
                elif task.attempts < MAX_ATTEMPTS:
                    waiting.append(task)
                    on_event(BuildEvent(task.graph, "retried", seconds))
                else:
                    failures.append(f"{task.graph}: {_reason(exit_code)}; log: {task.log}")
                    on_event(BuildEvent(task.graph, "failed", seconds))
    finally:
        for unfinished in running.values():
            _kill(unfinished.process)
        ours.close()
        lifeline.close()
    if failures:
        raise CompileError(
            f"{len(failures)} of {len(tasks)} graphs did not compile: " + "; ".join(failures),
            hint="the other graphs are in the cache; run the same command again to build the rest",
        )


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
            # Leave without the interpreter's own report: the log has it.
            os._exit(1)


def _reason(exit_code: int | None) -> str:
    assert exit_code is not None
    if exit_code == -SIGKILL:
        return (
            "the compiler was killed, probably for want of host memory; "
            "try fewer `--jobs` or a smaller bucket"
        )
    if exit_code < 0:
        return f"the compiler ended by signal {Signals(-exit_code).name}"
    return f"the compiler ended with exit code {exit_code}"
