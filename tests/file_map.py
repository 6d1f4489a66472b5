"""Print the README's file map: one line per file, from the first line of its docstring.

Usage: python tests/file_map.py
"""

from __future__ import annotations

import ast
from pathlib import Path

from repository import ROOT

PACKAGE = ROOT / "neuron_llm"
ROOMS = ("cli", "report", "compile", "runtime", "doctor", "artifact", "backends", "scheduler")


def file_map() -> str:
    """Return the map as Markdown: a table per room."""
    parts = []
    for room in ROOMS:
        files = sorted(p for p in (PACKAGE / room).rglob("*.py") if p.name != "__init__.py")
        rows = [f"| `{path.relative_to(PACKAGE / room)}` | {_purpose(path)} |" for path in files]
        head = f"**`neuron_llm/{room}/`** {_purpose(PACKAGE / room / '__init__.py')}"
        parts.append("\n".join([head, "", "| file | what it is |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def _purpose(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path} has no docstring"
    return docstring.splitlines()[0].replace("|", "\\|")


if __name__ == "__main__":
    print(file_map())
