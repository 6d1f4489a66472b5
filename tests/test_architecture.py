"""The arrows of docs/architecture.md hold in the sources: down, no circles, small rooms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest
from import_arrows import PACKAGE, between, circles, import_arrows, name_arrows
from repository import DOCS, ROOT

MAX_FILES_IN_FOLDER = 16
# What lies in a folder and is no code.
NO_CODE = {"", ".css", ".md", ".typed"}
# The package's own files: `neuron_llm/__init__.py` hands on what a library user calls.
GROUND = {"errors", "quantities", "version"}


def documented_rooms() -> dict[str, tuple[set[str], list[str]]]:
    """Return for each room of the page what it may import, and its folders from the lowest up."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)
    return {
        room: (set(re.findall(r"`(\w+)`", rooms)), re.findall(r"`([\w/]+)`", folders))
        for room, rooms, folders in rows
    }


ROOMS = documented_rooms()


def forbidden_arrows(
    arrows: Mapping[str, set[str]], rooms: Mapping[str, tuple[set[str], list[str]]]
) -> list[str]:
    """Return every import from a room into another that its row does not name."""
    found = []
    for (source, target), imports in between(arrows, 1).items():
        if source and target and target not in rooms[source][0]:
            found += imports
    return found


def climbing_arrows(arrows: Mapping[str, set[str]], room: str, folders: list[str]) -> list[str]:
    """Return every import from a folder of a room into one above it.

    A folder's own files stand on both sides of the folders inside it: a protocol below, a factory
    above.
    """
    floor = {f"{room}/{folder}": index for index, folder in enumerate(folders)}
    return [
        line
        for (source, target), imports in between(arrows, 3).items()
        if source in floor and target in floor and floor[source] < floor[target]
        if not target.startswith(f"{source}/") and not source.startswith(f"{target}/")
        for line in imports
    ]


def folders_with_files(package: Path) -> set[Path]:
    """Return the folders below the package in which a file lies, whatever it is."""
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.parent.relative_to(package) for path in files} - {Path()}


def wide_folders(package: Path) -> dict[str, int]:
    """Return the folders with too many files of code, and how many they have."""
    counts = {
        folder.as_posix(): sum(
            path.is_file() and path.suffix not in NO_CODE and path.name != "__init__.py"
            for path in (package / folder).iterdir()
        )
        for folder in {Path(), *folders_with_files(package)}
    }
    return {folder: count for folder, count in counts.items() if count > MAX_FILES_IN_FOLDER}


def test_every_room_and_every_folder_stands_in_the_table() -> None:
    folders = {
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE
    }
    assert {folder.parts[0] for folder in folders_with_files(PACKAGE)} == set(ROOMS)
    inner = {f"{room}/{folder}" for room, (_, named) in ROOMS.items() for folder in named}
    assert inner == {folder for folder in folders if "/" in folder}


def test_no_room_imports_what_its_row_does_not_name() -> None:
    assert forbidden_arrows(import_arrows(), ROOMS) == []
    assert forbidden_arrows(name_arrows(), ROOMS) == []


def test_the_rows_themselves_run_only_down() -> None:
    for room, (below, _) in ROOMS.items():
        assert room not in below
        for other in below:
            assert ROOMS[other][0] < below, f"{other} reaches past what {room} may import"


def test_the_ground_imports_no_room() -> None:
    arrows = import_arrows()
    assert {name for name in arrows if "/" not in name} == {*GROUND, "__init__"}
    assert all(arrows[name] <= GROUND for name in GROUND)


def test_no_file_goes_through_the_public_names() -> None:
    """They lead into every room: whoever imports one from there has an arrow that is not seen."""
    assert [name for name, imported in import_arrows().items() if "__init__" in imported] == []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(import_arrows()) == []


@pytest.mark.parametrize("room", ROOMS)
def test_folders_of_a_room_import_only_those_below_them(room: str) -> None:
    assert climbing_arrows(import_arrows(), room, ROOMS[room][1]) == []


def test_no_folder_is_wide() -> None:
    assert wide_folders(PACKAGE) == {}


def test_pytest_looks_into_every_folder_of_tests(pytestconfig: pytest.Config) -> None:
    left_out = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    names = {name for folder in folders for name in folder.relative_to(ROOT).parts}
    assert "build" in names
    assert not [name for name in names if any(fnmatch(name, pattern) for pattern in left_out)]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two rooms: `low`, and `high` with the folders `a` and `b`."""
    package = tmp_path / "neuron_llm"
    for folder in ("low", "high", "high/a", "high/b"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "low" / "one.py").write_text("import os\n")
    (package / "high" / "a" / "two.py").write_text("from neuron_llm.low import one\n")
    (package / "high" / "b" / "three.py").write_text("import neuron_llm.high.a.two\n")
    return package


TWO_ROOMS: dict[str, tuple[set[str], list[str]]] = {
    "low": (set(), []),
    "high": ({"low"}, ["a", "b"]),
}


def test_a_sound_package_is_left_alone(package: Path) -> None:
    arrows = import_arrows(package)
    assert arrows["high/a/two"] == {"low/one"}
    assert arrows["high/b/three"] == {"high/a/two"}
    assert forbidden_arrows(arrows, TWO_ROOMS) == []
    assert circles(arrows) == []
    assert climbing_arrows(arrows, "high", ["a", "b"]) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from neuron_llm.high.a.two import thing",
        "from neuron_llm.high.a import two",
        "import neuron_llm.high.a.two as other",
        "def later():\n    from neuron_llm.high.a.two import thing",
        "if TYPE_CHECKING:\n    from neuron_llm.high.a.two import thing",
        "from ..high.a.two import thing",
        "from ..high.a import two",
        "from .. import low\nfrom ..high.a.two import *",
        "import importlib\nimportlib.import_module('neuron_llm.high.a.two')",
        "from importlib import import_module\nimport_module('..high.a.two', __package__)",
        "two = __import__('neuron_llm.high.a.two')",
    ],
)
def test_an_upward_arrow_is_found_however_it_is_written(package: Path, statement: str) -> None:
    (package / "low" / "one.py").write_text(statement + "\n")
    arrows = import_arrows(package)
    assert forbidden_arrows(arrows, TWO_ROOMS) == ["low/one -> high/a/two"]
    assert circles(arrows) == [["high/a/two", "low/one"]]


def test_an_upward_name_is_found(package: Path) -> None:
    command = "COMMAND = ['python', '-m', 'neuron_llm.high.a.two', 'neuron_llm.high a']"
    (package / "low" / "one.py").write_text(command)
    assert import_arrows(package)["low/one"] == set()
    assert forbidden_arrows(name_arrows(package), TWO_ROOMS) == ["low/one -> high/a/two"]


def test_a_folder_that_climbs_is_found(package: Path) -> None:
    (package / "high" / "a" / "four.py").write_text("from neuron_llm.high.b import three\n")
    climbing = climbing_arrows(import_arrows(package), "high", ["a", "b"])
    assert climbing == ["high/a/four -> high/b/three"]


@pytest.mark.parametrize("suffix", [".py", ".pyi", ".cpp", ".cc", ".c", ".h", ".hpp", ".js"])
def test_a_17th_file_is_found(package: Path, suffix: str) -> None:
    for number in range(MAX_FILES_IN_FOLDER):
        (package / "low" / f"file_{number}{suffix}").touch()
    assert wide_folders(package) == {"low": MAX_FILES_IN_FOLDER + 1}


def test_a_circle_within_a_folder_is_found_however_it_is_written(package: Path) -> None:
    (package / "high" / "a" / "__init__.py").write_text("from . import four\n")
    (package / "high" / "a" / "four.py").write_text("from .five import thing\n")
    (package / "high" / "a" / "five.py").write_text("from . import four\n")
    arrows = import_arrows(package)
    assert arrows["high/a/__init__"] == {"high/a/four"}
    assert circles(arrows) == [["high/a/five", "high/a/four"]]
