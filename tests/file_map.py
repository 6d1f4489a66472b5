"""Print docs/files.md: one line for each file, from the first line of its docstring.

Usage: python tests/file_map.py > docs/files.md
"""

from __future__ import annotations

import ast
from pathlib import Path

from repository import ROOT

PACKAGE = ROOT / "neuron_llm"
ROOMS = ("cli", "report", "compile", "runtime", "doctor", "artifact", "backends", "scheduler")
HEAD = """\
# Every file and what it is

Rooms from the top floor down ([architecture.md](architecture.md)). Made by
`python tests/file_map.py > docs/files.md`."""


def file_map() -> str:
    """Return the page as Markdown: a section for each room, a table for each of its folders."""
    parts = [HEAD]
    for room in ROOMS:
        parts.append(f"## {room}/\n\n{_purpose(PACKAGE / room / '__init__.py')}")
        parts.append(_table(PACKAGE / room))
        for folder in sorted(p.parent for p in (PACKAGE / room).rglob("*/__init__.py")):
            if folder != PACKAGE / room:
                head = f"**{folder.relative_to(PACKAGE)}/** {_purpose(folder / '__init__.py')}"
                parts += [head, _table(folder)]
    parts.append("## Beside the rooms\n\nWhat all of them may import.")
    parts.append(_table(PACKAGE))
    return "\n\n".join(part for part in parts if part)


def _table(folder: Path) -> str:
    files = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
    rows = [f"| `{path.name}` | {_purpose(path)} |" for path in files]
    return "\n".join(["| file | what it is |", "| --- | --- |", *rows]) if rows else ""


def _purpose(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path} has no docstring"
    return docstring.splitlines()[0].replace("|", "\\|")


if __name__ == "__main__":
    print(file_map())
