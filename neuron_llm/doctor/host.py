"""Where the probes look: this machine, or a recording of another."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.backends.neuron.command import CommandRunner, run_command


@dataclass(frozen=True, kw_only=True)
class Host:
    """Everything that a probe reads comes through here.

    Attributes:
        root: what stands for `/`: `/dev`, `/proc`, `/sys` and `/opt` are looked for below it.
        environ: the environment variables.
        package_path: folders with installed packages, as in `sys.path`.
        run: runs other programs.
        python: the interpreter whose imports are tried.
        python_version: its version.
    """

    root: Path
    environ: Mapping[str, str]
    package_path: tuple[str, ...]
    run: CommandRunner
    python: str
    python_version: str

    @classmethod
    def this_machine(cls, environ: Mapping[str, str]) -> Host:
        """Return the machine, the process and the interpreter that this runs in."""
        return cls(
            root=Path("/"),
            environ=environ,
            package_path=tuple(sys.path),
            run=run_command,
            python=sys.executable,
            python_version=platform.python_version(),
        )

    def path(self, absolute: str) -> Path:
        """Return where an absolute path lies on this host."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """Return a text file without the white space around it; None if it cannot be read."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def find_program(self, name: str) -> str | None:
        """Return the path of a program that `PATH` leads to."""
        return shutil.which(name, path=self.environ.get("PATH", ""))
