"""The log of an artifact's last run: its steps, a JSON line each below a header. Knows no torch.

They lie in the current directory, not in the artifact, which never changes:

    .neuron-llm/runs/<artifact_id>/last_run.jsonl
"""

from __future__ import annotations

import fcntl
import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from uuid import uuid4

from neuron_llm.scheduler.step_record import StepRecord

SCHEMA_VERSION = 2
STATE_DIR = Path(".neuron-llm")
_LAST_RUN = "last_run.jsonl"
_UNFINISHED = "unfinished-"


@dataclass(frozen=True)
class RunHeader:
    """The first line of a run's log.

    Attributes:
        artifact_id: what ran.
        started_at: when, as ISO 8601 with the time zone.
    """

    artifact_id: str
    started_at: str


def last_run_path(artifact_id: str, state_dir: Path = STATE_DIR) -> Path:
    """Return where the log of an artifact's last run lies, whether or not there is one."""
    return state_dir / "runs" / artifact_id / _LAST_RUN


def new_run_log(artifact_id: str, state_dir: Path) -> RunLogWriter:
    """Return the log of a run that begins now, to be entered.

    Args:
        artifact_id: of the manifest of what runs.
        state_dir: where the logs of last runs lie; `STATE_DIR` for `bucket-report` to find it.
    """
    started_at = datetime.now().astimezone().isoformat(timespec="seconds")
    return RunLogWriter(last_run_path(artifact_id, state_dir), RunHeader(artifact_id, started_at))


class RunLogWriter(AbstractContextManager["RunLogWriter"]):
    """Records the steps of a run; the log replaces the one before when the block ends well.

    A run without steps, such as a chat that was left at once, replaces nothing. A log that cannot
    be written stops nobody: `failure` says why there is none.

    Args:
        path: from `last_run_path`; its folders are made.
        header: of this run.

    Attributes:
        failure: the first error of the operating system, or None.
    """

    def __init__(self, path: Path, header: RunHeader) -> None:
        self.failure: OSError | None = None
        self._path = path
        self._header = header
        self._file: IO[str] | None = None
        self._num_steps = 0

    def __enter__(self) -> Self:
        """Begin a new log beside the last one."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self._path.parent)
            unfinished = self._path.with_name(f"{_UNFINISHED}{uuid4().hex}.jsonl")
            self._file = unfinished.open("x", encoding="utf-8")
            # Held until the process ends, however it ends: it tells a run from what one left.
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            self.failure = error
        self._write_line({"schema_version": SCHEMA_VERSION, **asdict(self._header)})
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Put the log in place, or drop it if the run failed, the log did, or nothing ran."""
        file, self._file = self._file, None
        if file is None:
            return
        unfinished = Path(file.name)
        try:
            file.close()
            if exc_type is None and self.failure is None and self._num_steps:
                unfinished.replace(self._path)
        except OSError as error:
            self.failure = self.failure or error
        unfinished.unlink(missing_ok=True)

    @property
    def warning(self) -> str | None:
        """Why there will be no log of this run, in a sentence; None if nothing has failed."""
        if self.failure is None:
            return None
        reason = self.failure.strerror or str(self.failure)
        return (
            "`bucket-report` will not show this run: its steps cannot be recorded in"
            f" `{self._path}` ({reason.lower()})"
        )

    def write(self, step: StepRecord) -> None:
        """Record a step; buffered."""
        self._num_steps += 1
        self._write_line(asdict(step))

    def _write_line(self, content: dict[str, Any]) -> None:
        if self._file is None or self.failure is not None:
            return
        try:
            self._file.write(json.dumps(content, separators=(",", ":")) + "\n")
        except OSError as error:
            self.failure = error


def _remove_abandoned(directory: Path) -> None:
    """Remove the logs of runs that were killed: nobody holds their lock."""
    for path in directory.glob(f"{_UNFINISHED}*"):
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            path.unlink(missing_ok=True)
