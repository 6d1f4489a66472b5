"""Levels, and building and loading the library."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from level_libraries import built_library
from shim_call import last_error

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators import library as library_module
from neuron_llm.backends.cpu.operators.isa import IsaLevel, missing_features, widest_level
from neuron_llm.backends.cpu.operators.library import build_library, load_library
from neuron_llm.errors import ArtifactError, CompileError

X86_64_V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
X86_64_V4 = X86_64_V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
SOURCE = """\
extern "C" __attribute__((visibility("default"))) const char* neuron_llm_last_error() {
  return "none";
}
"""


@pytest.mark.parametrize(
    ("features", "level"),
    [
        (X86_64_V4 | {"avx512_bf16", "amx_bf16", "sse4_2"}, IsaLevel.AVX512_BF16),
        (X86_64_V4, IsaLevel.AVX512),
        (X86_64_V4 - {"avx512vl"}, IsaLevel.AVX2),
        (X86_64_V3, IsaLevel.AVX2),
        ((X86_64_V4 | {"avx512_bf16"}) - {"fma"}, IsaLevel.PORTABLE),
        (set(), IsaLevel.PORTABLE),
    ],
)
def test_the_widest_level_needs_nothing_that_the_cpu_lacks(
    features: set[str], level: IsaLevel
) -> None:
    assert widest_level(features) is level
    assert not missing_features(level, features)


def test_missing_features_are_named() -> None:
    assert missing_features(IsaLevel.AVX512_BF16, X86_64_V4) == ["avx512_bf16"]
    assert missing_features(IsaLevel.AVX2, {"avx2", "bmi1", "bmi2", "movbe"}) == ["f16c", "fma"]
    assert not missing_features(widest_level(cpu_features()), cpu_features())


class Compiler:
    """Counts how often g++ is started."""

    def __init__(self) -> None:
        self.num_runs = 0
        self._run = subprocess.run

    def run(self, *arguments: object, **options: object) -> object:
        self.num_runs += 1
        return self._run(*arguments, **options)  # type: ignore[call-overload]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of sources that are built in no time."""
    directory = tmp_path / "csrc"
    directory.mkdir()
    (directory / "error.cpp").write_text(SOURCE)
    monkeypatch.setattr(library_module, "_CSRC", directory)
    return directory


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    compiler = Compiler()
    monkeypatch.setattr(subprocess, "run", compiler.run)
    yield compiler


def test_a_library_is_built_once_and_named_after_its_content(
    sources: Path, compiler: Compiler, tmp_path: Path
) -> None:
    built = build_library(IsaLevel.PORTABLE, tmp_path / "new" / "directory")
    assert built == build_library(IsaLevel.PORTABLE, built.parent)
    assert compiler.num_runs == 1
    assert built.name.encode() in built.read_bytes(), "graphs find it by this name"
    assert last_error(load_library(built)) == "none"
    others = [build_library(IsaLevel.AVX2, built.parent)]
    others.append(build_library(IsaLevel.PORTABLE, built.parent, compiler_options=["-O1"]))
    (sources / "error.cpp").write_text(SOURCE.replace("none", "some"))
    others.append(build_library(IsaLevel.PORTABLE, built.parent))
    (sources / "a.h").write_text("")
    others.append(build_library(IsaLevel.PORTABLE, built.parent))
    assert len({built, *others}) == compiler.num_runs == 5
    assert last_error(load_library(others[2])) == "some"


def test_those_who_build_at_the_same_time_build_once(
    sources: Path, compiler: Compiler, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: build_library(IsaLevel.PORTABLE, tmp_path), range(4)))
    assert len(set(paths)) == compiler.num_runs == 1
    assert sorted(p.suffix for p in tmp_path.glob("lib*")) == [".lock", ".so"]


def test_what_the_compiler_says_is_in_the_error_and_nothing_is_left(
    sources: Path, tmp_path: Path
) -> None:
    (sources / "broken.cpp").write_text("int f() { return undeclared; }\n")
    with pytest.raises(CompileError, match=r"`g[+][+]` could not build(.|\n)*undeclared") as caught:
        build_library(IsaLevel.PORTABLE, tmp_path / "out")
    assert "broken.cpp:1" in caught.value.message
    assert [p.suffix for p in (tmp_path / "out").iterdir()] == [".lock"]
    (sources / "broken.cpp").unlink()
    load_library(build_library(IsaLevel.PORTABLE, tmp_path / "out"))


def test_a_missing_compiler_is_an_error_that_says_what_to_install(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"no C[+][+] compiler: `g[+][+]`") as caught:
        build_library(IsaLevel.PORTABLE, tmp_path)
    assert caught.value.hint is not None and "apt-get install g++" in caught.value.hint


@pytest.mark.parametrize("content", ["", "no library"])
def test_a_file_that_is_no_library_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "lib.so"
    path.write_text(content)
    with pytest.raises(ArtifactError, match=f"the operator library `{path}` cannot be loaded"):
        load_library(path)


@pytest.mark.parametrize("level", list(IsaLevel))
def test_every_level_builds_without_a_warning(
    level: IsaLevel, request: pytest.FixtureRequest
) -> None:
    assert built_library(level, request.config).is_file()
