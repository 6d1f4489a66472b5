"""The content-addressed compile cache.

Two levels of key. A `config_key` follows from the configuration alone, so that a fully cached
compile exports nothing; it leads to a `graph_key`, the hash of the exported graph, under which the
compiled files lie. Entries appear by one rename and are never changed, so that a killed build
leaves at worst a directory in `tmp/`, which the next one sweeps. An entry whose files are not what
its checksums say is no entry, and is built again. Locks are kernel locks on open files, which end
with their process.

    <root>/keys/<config_key>      text: the graph_key
    <root>/graphs/<graph_key>/    the compiled files, and the checksum of each
    <root>/locks/  <root>/logs/  <root>/tmp/
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from neuron_llm.errors import NeuronLLMError

CHECKSUMS_FILE = "checksums.json"

_FOLDERS = ("keys", "graphs", "locks", "logs", "sessions", "tmp")
# Shared by all who have something in `tmp/`, so that whoever gets it alone may sweep.
_TMP_LOCK = "tmp"
# Shared by whoever notes a use, so that pruning decides about all entries in one step.
_PRUNE_LOCK = "prune"
_GRAPH_KEY = re.compile(r"[\w-]+")


def content_key(content: Any) -> str:
    """Return the sha256 of a JSON-able value in canonical form, 64 hex digits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class GraphCache:
    """Compiled graphs on disk, shared by processes and by artifacts.

    Args:
        root: created if missing.

    Raises:
        NeuronLLMError: the directory cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            for folder in _FOLDERS:
                (root / folder).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root / "tmp"):
                pass
        except OSError as error:
            raise NeuronLLMError(
                f"the compile cache `{root}` cannot be written: {error.strerror}",
                hint="name another directory with `--cache-dir`",
            ) from error
        self._sweep()

    def find(self, config_key: str) -> Path | None:
        """Return the directory of the graph that a configuration leads to, or None."""
        link = self.root / "keys" / config_key
        if not link.is_file():
            return None
        graph_key = link.read_text(errors="replace").strip()
        if not _GRAPH_KEY.fullmatch(graph_key):
            return None
        directory = self.root / "graphs" / graph_key
        if not self.use(directory):
            return None
        if _is_whole(directory):
            return directory
        # Another process may be building it anew; what that one finished must not be thrown away.
        with self.lock(graph_key):
            return self.graph_directory(graph_key)

    def link(self, config_key: str, graph_key: str) -> None:
        """Record which graph a configuration leads to."""
        with self.scratch() as scratch:
            path = scratch / "key"
            path.write_text(graph_key)
            os.replace(path, self.root / "keys" / config_key)

    def graph_directory(self, graph_key: str) -> Path | None:
        """Return the directory of a graph by its content, or None; a damaged one is removed.

        The caller holds the graph's lock.
        """
        directory = self.root / "graphs" / graph_key
        if not self.use(directory):
            return None
        if _is_whole(directory):
            return directory
        with self.scratch() as scratch:
            os.rename(directory, scratch / "damaged")
        return None

    def entry(self, key: str, make: Callable[[Path], None]) -> Path:
        """Return the directory of an entry; whoever has its lock makes it, others wait for it.

        Args:
            key: its name.
            make: fills the directory that it is given; called only if there is no such entry.
        """
        with self.lock(key):
            directory = self.graph_directory(key)
            if directory is None:
                with self.new_entry(key) as unfinished:
                    make(unfinished)
                directory = self.root / "graphs" / key
            return directory

    def use(self, entry: Path) -> bool:
        """Note that an entry is used now; return whether it is there."""
        with self._lock(_PRUNE_LOCK, fcntl.LOCK_SH):
            if not entry.is_dir():
                return False
            # Of another user's entry the time stays what it was.
            with contextlib.suppress(PermissionError):
                os.utime(entry)
            return True

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Keep pruning away from what is used until the block ends."""
        with contextlib.ExitStack() as stack:
            with self._lock(_PRUNE_LOCK, fcntl.LOCK_SH):
                file = stack.enter_context(tempfile.NamedTemporaryFile(dir=self.root / "sessions"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def pruning(self) -> Iterator[float | None]:
        """Let nobody note a use meanwhile; give the time when the oldest session began, or None."""
        with self._lock(_PRUNE_LOCK, fcntl.LOCK_EX):
            began = [self._session_began(path) for path in (self.root / "sessions").iterdir()]
            yield min((time for time in began if time is not None), default=None)

    @contextlib.contextmanager
    def new_entry(self, graph_key: str) -> Iterator[Path]:
        """Give a directory to fill; it becomes the graph's entry if the block ends well."""
        with self.scratch() as scratch:
            directory = scratch / "entry"
            directory.mkdir()
            yield directory
            (directory / CHECKSUMS_FILE).write_text(json.dumps(_checksums(directory), indent=1))
            os.rename(directory, self.root / "graphs" / graph_key)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a directory on the cache's file system that goes when the block ends."""
        with self._lock(_TMP_LOCK, fcntl.LOCK_SH):
            directory = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold a key's lock; others that want it wait."""
        with self._lock(key, fcntl.LOCK_EX):
            yield

    def log_path(self, graph_name: str, config_key: str) -> Path:
        """Return where the log of a build goes."""
        return self.root / "logs" / f"{graph_name}-{config_key[:12]}.log"

    @contextlib.contextmanager
    def _lock(self, name: str, operation: int) -> Iterator[None]:
        with _open_lock(self.root / "locks" / name) as file:
            fcntl.flock(file, operation)
            yield

    def _session_began(self, path: Path) -> float | None:
        """Return when a session began; one whose process was killed is removed, and None."""
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return path.stat().st_mtime
            path.unlink()
        return None

    def _sweep(self) -> None:
        """Remove what killed processes left in `tmp/`, unless a living one is at work there."""
        with (
            contextlib.suppress(BlockingIOError),
            self._lock(_TMP_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB),
        ):
            for leftover in (self.root / "tmp").iterdir():
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)


def _open_lock(path: Path) -> IO[str]:
    try:
        # Locking over NFS takes a file that can be written.
        return path.open("w")
    except PermissionError:
        # Another user made it in a cache that both may write to; elsewhere reading is enough.
        return path.open()


def _checksums(directory: Path) -> dict[str, str]:
    """Return the sha256 of every file of an entry, by name."""
    checksums = {}
    for path in sorted(directory.iterdir()):
        if path.name != CHECKSUMS_FILE:
            with path.open("rb") as file:
                checksums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return checksums


def _is_whole(directory: Path) -> bool:
    try:
        recorded: object = json.loads((directory / CHECKSUMS_FILE).read_text())
        return bool(recorded == _checksums(directory))
    except (OSError, ValueError):
        return False
