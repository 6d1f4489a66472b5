"""Which file of the package imports which, read from the sources; lazy imports count.

Usage: python tests/import_arrows.py
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from repository import ROOT

PACKAGE = ROOT / "neuron_llm"


def import_arrows(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return for each file, by its path without suffix below `package`, the files it imports."""
    return _arrows(package, _imported)


def name_arrows(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return for each file the files that a text in it names in full, as `-m` takes a module."""
    return _arrows(package, _named)


def _arrows(
    package: Path, told: Callable[[ast.AST, list[str]], Iterable[str]]
) -> dict[str, set[str]]:
    paths = {path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.py")}
    arrows = {}
    for name in sorted(paths):
        tree = ast.parse((package / f"{name}.py").read_text(encoding="utf-8"))
        # As a dotted name, in parts, the folder that the file lies in.
        folder = [package.name, *name.split("/")[:-1]]
        dotted = (d.split(".") for node in ast.walk(tree) for d in told(node, folder))
        found = {_file_of(d[1:], paths) for d in dotted if d[0] == package.name}
        arrows[name] = {file for file in found if file is not None} - {name}
    return arrows


def _imported(node: ast.AST, folder: list[str]) -> list[str]:
    """Return what a node imports, as dotted names."""
    if isinstance(node, ast.ImportFrom):
        home = _absolute("." * node.level + (node.module or ""), folder)
        return [f"{home}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
        return [_absolute(text, folder) for text in _texts(node.args[:1])]
    return []


def _named(node: ast.AST, folder: list[str]) -> list[str]:
    return [text for text in _texts([node]) if re.fullmatch(rf"{folder[0]}(\.\w+)+", text)]


def _called(call: ast.Call) -> str | None:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _texts(nodes: Iterable[ast.AST]) -> list[str]:
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]


def _absolute(name: str, folder: list[str]) -> str:
    """Return the full name of a module that may be named relative to the folder, as `..other`."""
    rest = name.lstrip(".")
    level = len(name) - len(rest)
    above = folder[: len(folder) - level + 1] if level else []
    return ".".join([*above, *filter(None, [rest])])


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
