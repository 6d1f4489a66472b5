"""Which file of the package imports which, read from the sources; lazy imports count.

Usage: python tests/import_arrows.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from repository import ROOT

PACKAGE = ROOT / "neuron_llm"


def import_arrows(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return for each file, by its path without suffix below `package`, the files it imports."""
    paths = {path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.py")}
    arrows = {}
    for name in sorted(paths):
        tree = ast.parse((package / f"{name}.py").read_text(encoding="utf-8"))
        dotted = (d for node in ast.walk(tree) for d in _imported(node, package.name))
        found = {_file_of(d.split(".")[1:], paths) for d in dotted}
        arrows[name] = {file for file in found if file is not None} - {name}
    return arrows


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yield what a statement imports from the package, as dotted names."""
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        return
    yield from (name for name in names if name.split(".")[0] == package)


def _file_of(parts: list[str], paths: set[str]) -> str | None:
    """Return the file that a dotted name means: a module, a name in one, or a package's face."""
    for length in range(len(parts), -1, -1):
        name = "/".join(parts[:length])
        for file in (name, f"{name}/__init__".removeprefix("/")):
            if file in paths:
                return file
    return None


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of files that import each other in a loop, each sorted."""
    reach = {name: _reached(name, arrows) for name in arrows}
    loops = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in arrows
        if name in reach[name]
    }
    return [list(loop) for loop in sorted(loops)]


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    left = [start]
    while left:
        new = arrows[left.pop()] - reached
        reached |= new
        left += new
    return reached


def between(arrows: Mapping[str, set[str]], depth: int) -> dict[tuple[str, str], list[str]]:
    """Return the arrows between folders of a depth, each with the imports that it stands for."""
    folded = defaultdict(list)
    for file, imported in arrows.items():
        for other in sorted(imported):
            pair = (_folder(file, depth), _folder(other, depth))
            if pair[0] != pair[1]:
                folded[pair].append(f"{file} -> {other}")
    return dict(folded)


def _folder(file: str, depth: int) -> str:
    return "/".join(file.split("/")[:-1][:depth])


if __name__ == "__main__":
    found = import_arrows()
    print("circles:", circles(found))
    for (source, target), imports in sorted(between(found, 1).items()):
        print(f"{source or '.'} -> {target or '.'}: {len(imports)}")
