"""The keys of caches follow the sources of what they hold, and no others."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from import_arrows import import_arrows

import neuron_llm
from neuron_llm.backends.build import sources
from neuron_llm.backends.build.sources import source_files
from neuron_llm.backends.cpu.backend import config_key
from neuron_llm.backends.cpu.environment import graph_environment as cpu_environment
from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.environment import graph_environment as neuron_environment
from neuron_llm.compile.model.checkpoint import _converter
from neuron_llm.scheduler.buckets import DecodeBucket

SPEC = GraphSpec(DecodeBucket(4, 64), {"model_type": "llama"}, "float32", 64, 4, 65)
BACKENDS = "neuron_llm.backends"
NEURON_BUILDERS = (f"{BACKENDS}.neuron.graph_build", f"{BACKENDS}.neuron.model_builder.nxd_model")
CPU_FILES = source_files(f"{BACKENDS}.cpu.aot", room=BACKENDS)
NEURON_FILES = source_files(*NEURON_BUILDERS, room=BACKENDS)
CONVERTER, CONVERTER_ROOM = "neuron_llm.compile.model.checkpoint", "neuron_llm.compile.model"
CONVERTER_FILES = source_files(CONVERTER, room=CONVERTER_ROOM)


def cpu_key() -> str:
    return config_key(SPEC, CpuTarget(IsaLevel.PORTABLE))


def neuron_key() -> str:
    return str(neuron_environment("model_builder"))


def converter_key() -> str:
    return str(_converter())


def forget() -> None:
    for remembered in (sources.sources_digest, cpu_environment, neuron_environment):
        remembered.cache_clear()


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package that keys are made of instead."""
    package = tmp_path / "neuron_llm"
    shutil.copytree(Path(neuron_llm.__file__).parent, package)
    monkeypatch.setattr(sources, "_PACKAGE", package)
    forget()
    yield package
    forget()


def key_after_touching(path: Path, key: Callable[[], str]) -> str:
    """Return the key with one byte more in a file, which is as it was afterwards."""
    content = path.read_bytes()
    path.write_bytes(content + b"#")
    forget()
    try:
        return key()
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("key", "names"),
    [(cpu_key, CPU_FILES), (neuron_key, NEURON_FILES), (converter_key, CONVERTER_FILES)],
)
def test_a_byte_of_any_source_changes_the_key(
    copied: Path, key: Callable[[], str], names: list[str]
) -> None:
    keys = [key(), *(key_after_touching(copied / name, key) for name in names)]
    assert len(set(keys)) == len(names) + 1


@pytest.mark.parametrize("key", [cpu_key, neuron_key, converter_key])
def test_what_builds_nothing_changes_no_key(copied: Path, key: Callable[[], str]) -> None:
    before = key()
    for name in ("errors.py", "cli/main.py", "runtime/llm.py", "backends/build/pool.py"):
        assert key_after_touching(copied / name, key) == before, name


def test_the_place_of_the_installation_is_in_no_key(copied: Path) -> None:
    elsewhere = cpu_key(), neuron_key(), converter_key()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_PACKAGE", Path(neuron_llm.__file__).parent)
        forget()
        assert (cpu_key(), neuron_key(), converter_key()) == elsewhere


def test_what_traces_and_compiles_is_among_the_sources() -> None:
    shared = {
        *("backends/build/entry.py", "backends/build/files.py", "backends/build/key.py"),
        *(f"backends/graph/{name}.py" for name in ("empty_model", "experts", "inputs", "rotary")),
    }
    cpu = {"cpu/aot", "cpu/export", "cpu/operator_linears", "cpu/shared_object", "graph/attention"}
    neuron = {
        *("graph/lazy_zeros", "neuron/graph/torch_releases", "neuron/graph/static_graph"),
        *("neuron/model_builder/nxd_model", "neuron/trace/trace", "neuron/target"),
    }
    assert shared | {f"backends/{name}.py" for name in cpu} <= set(CPU_FILES)
    assert shared | {f"backends/{name}.py" for name in neuron} <= set(NEURON_FILES)
    # Neither backend's graphs are built again for the other.
    assert not any(name.startswith("backends/neuron/") for name in CPU_FILES)
    assert not any(name.startswith("backends/cpu/") for name in NEURON_FILES)


@pytest.mark.parametrize(
    ("builders", "room", "names"),
    [
        ([f"{BACKENDS}.cpu.aot"], BACKENDS, CPU_FILES),
        (NEURON_BUILDERS, BACKENDS, NEURON_FILES),
        ([CONVERTER], CONVERTER_ROOM, CONVERTER_FILES),
    ],
)
def test_the_sources_are_what_the_arrows_of_the_package_lead_to(
    builders: Sequence[str], room: str, names: list[str]
) -> None:
    """An import that is written otherwise, such as a relative one, would be in no key."""
    arrows, reached = import_arrows(), set[str]()
    waiting = [builder.partition(".")[2].replace(".", "/") for builder in builders]
    folder = room.partition(".")[2].replace(".", "/") + "/"
    while waiting:
        name = waiting.pop()
        is_source = name.startswith(folder) and f"{name}.py" not in sources._LEFT_OUT
        if is_source and name not in reached:
            reached.add(name)
            waiting += arrows[name]
    assert names == sorted(f"{name}.py" for name in reached)


def test_what_is_left_out_is_there_and_would_count(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = sources._LEFT_OUT
    monkeypatch.setattr(sources, "_LEFT_OUT", frozenset())
    everything = source_files(f"{BACKENDS}.cpu.aot", *NEURON_BUILDERS, room=BACKENDS)
    assert left_out <= set(everything)
    assert not left_out & {*CPU_FILES, *NEURON_FILES}


def test_imports_are_followed_in_whatever_form_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    texts = {
        "one": "import neuron_llm.room.two as other",
        "two": "from neuron_llm.room import three",
        "three": "def late():\n    from neuron_llm.room.four import name",
        "four": "import os\nfrom neuron_llm.elsewhere import name",
        "five": "",
    }
    for name, text in texts.items():
        (room / f"{name}.py").write_text(text)
    (tmp_path / "elsewhere.py").touch()
    monkeypatch.setattr(sources, "_PACKAGE", tmp_path)
    found = source_files("neuron_llm.room.one", room="neuron_llm.room")
    assert found == ["room/four.py", "room/one.py", "room/three.py", "room/two.py"]
