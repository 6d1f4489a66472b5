"""The content-addressed compile cache.

Two levels of key. A `config_key` follows from the configuration alone, so that a fully cached
compile exports nothing; it leads to a `graph_key`, the hash of the exported graph, under which the
compiled files lie. Entries appear by one rename and are never changed, so that a killed build
leaves at worst a directory in `tmp/`. Locks are kernel locks on open files, which end with their
process.

    <root>/keys/<config_key>      text: the graph_key
    <root>/graphs/<graph_key>/    the compiled files
    <root>/locks/  <root>/logs/  <root>/tmp/
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neuron_llm.errors import NeuronLLMError

_FOLDERS = ("keys", "graphs", "locks", "logs", "tmp")


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

    def find(self, config_key: str) -> Path | None:
        """Return the directory of the graph that a configuration leads to, or None."""
        link = self.root / "keys" / config_key
        if not link.is_file():
            return None
        directory = self.root / "graphs" / link.read_text().strip()
        return directory if directory.is_dir() else None

    def link(self, config_key: str, graph_key: str) -> None:
        """Record which graph a configuration leads to."""
        with self._new_file() as path:
            path.write_text(graph_key)
            os.replace(path, self.root / "keys" / config_key)

    def graph_directory(self, graph_key: str) -> Path | None:
        """Return the directory of a graph by its content, or None."""
        directory = self.root / "graphs" / graph_key
        return directory if directory.is_dir() else None

    @contextlib.contextmanager
    def new_entry(self, graph_key: str) -> Iterator[Path]:
        """Give a directory to fill; it becomes the graph's entry if the block ends well."""
        directory = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        try:
            yield directory
            os.rename(directory, self.root / "graphs" / graph_key)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold a key's lock; others that want it wait."""
        with (self.root / "locks" / key).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def log_path(self, graph_name: str, config_key: str) -> Path:
        """Return where the log of a build goes."""
        return self.root / "logs" / f"{graph_name}-{config_key[:12]}.log"

    @contextlib.contextmanager
    def _new_file(self) -> Iterator[Path]:
        handle, name = tempfile.mkstemp(dir=self.root / "tmp")
        os.close(handle)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)
