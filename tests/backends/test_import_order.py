"""Imports run in one direction: no circle of files, and none of sub-folders."""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import neuron_llm
from neuron_llm.backends.build.sources import imported_modules

PACKAGE = Path(neuron_llm.__file__).parent
ROOMS = ("backends", "doctor")
FOLDERS = sorted(
    folder
    for room in ROOMS
    for folder in (PACKAGE / room, *(PACKAGE / room).rglob("*"))
    if (folder / "__init__.py").is_file()
)


def imports_within(folder: Path) -> dict[Path, set[Path]]:
    """Return which files below a folder each of them imports; in functions and for types too."""
    files = {
        ".".join(("neuron_llm", *path.relative_to(PACKAGE).with_suffix("").parts)): path
        for path in folder.rglob("*.py")
    }
    return {
        path: {files[name] for name in imported_modules(path) if name in files}
        for path in files.values()
    }


@pytest.mark.parametrize("room", ROOMS)
def test_no_files_import_each_other_in_a_circle(room: str) -> None:
    imports = imports_within(PACKAGE / room)
    assert len(imports) > 10
    # It raises where there is no order, and names the circle.
    assert set(TopologicalSorter(imports).static_order()) == set(imports)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_what_stands_in_a_folder_has_an_order(folder: Path) -> None:
    """Its files, and each of its sub-folders as one."""

    def child(path: Path) -> str:
        return path.relative_to(folder).parts[0]

    order: dict[str, set[str]] = {}
    for path, imported in imports_within(folder).items():
        below = {child(other) for other in imported} - {child(path)}
        order.setdefault(child(path), set()).update(below)
    TopologicalSorter(order).prepare()


def test_the_registry_is_above_the_backends_and_the_protocol_below() -> None:
    imports = imports_within(PACKAGE / "backends")
    registry, protocol = (PACKAGE / "backends" / f"{name}.py" for name in ("registry", "protocol"))
    assert not [path for path, imported in imports.items() if registry in imported]
    assert all(path.parent.name == "graph" for path in imports[protocol])
