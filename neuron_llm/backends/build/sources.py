"""The source files that decide what a build gives: those that its module imports, and theirs.

They are read, not imported, and named by their place in the package, so that two installations of
the same sources agree.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
# Where a graph lies, what a package or a chip is called, what a backend promises: no graph differs
# by the text of these, and what of them reaches the compiler is in the key by its value (versions,
# compiler arguments). Whatever is not named here counts, so that a new file cannot be forgotten.
_LEFT_OUT = frozenset(
    {
        "backends/build/cache.py",
        "backends/build/inventory.py",
        "backends/build/sources.py",
        "backends/neuron/generations.py",
        "backends/neuron/packages.py",
        "backends/protocol.py",
    }
)


@cache
def sources_digest(*modules: str, room: str) -> str:
    """Return the sha256 of modules and of all that they import within a room.

    Args:
        modules: by their full names.
        room: what is imported from elsewhere is left out, as `source_files` says.
    """
    digest = hashlib.sha256()
    for name in source_files(*modules, room=room):
        digest.update(name.encode() + b"\0" + (_PACKAGE / name).read_bytes())
    return digest.hexdigest()


def source_files(*modules: str, room: str) -> list[str]:
    """Return the files of modules and of all that they import within a room, however indirectly.

    Imports within functions and for types count too: a file too many costs a build, one too few
    gives a graph of other sources. The rest of the project is left out: what it hands over are
    specifications, which are in every key by themselves.

    Args:
        modules: by their full names.
        room: such as `neuron_llm.backends`.

    Returns:
        paths from the package's folder, sorted.
    """
    waiting, found = list(modules), set()
    while waiting:
        module = waiting.pop()
        name = _file_of(module)
        if not module.startswith(f"{room}.") or name in found or name in _LEFT_OUT:
            continue
        if (_PACKAGE / name).is_file():
            found.add(name)
            waiting += imported_modules(_PACKAGE / name)
    return sorted(found)


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the names that a file imports; some of them are of things within a module."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(module: str) -> str:
    return "/".join(module.split(".")[1:]) + ".py"
