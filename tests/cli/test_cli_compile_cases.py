"""Faults of compiling that must show themselves before the compiler starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_runner import run_cli
from conftest import Compiled


@pytest.fixture
def config(llama: Compiled, empty_state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration whose graphs are in no cache, and a compiler that must not be started."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("the compiler has been started")

    monkeypatch.setattr("neuron_llm.backends.build.builds.build_all", started)
    path = empty_state / "tiny.yaml"
    path.write_text(llama.config.read_text().replace("block_size: 4", "block_size: 8"))
    yield path
    assert not Path("artifacts").exists()


def test_rows_times_tokens_over_the_budget_cannot_even_be_written(config: Path) -> None:
    """The fault: prefill batches whose product exceeds the budget fail in the compiler."""
    config.write_text(config.read_text() + "  prefill_batch_sizes: [4]\n")
    ended = run_cli("compile", config, "--cache-dir", "cache")
    assert (ended.code, ended.stdout) == (1, "")
    (fault,) = ended.stderr.splitlines()[1:]
    assert fault.startswith(f"{config}:10: neuron_config.prefill_batch_sizes: no such key")


@pytest.mark.parametrize("buckets", ["[8, 16, 128]", "[8, 16, 32]"])
def test_a_bucket_over_a_limit_is_refused_with_the_rule_and_never_dropped(
    config: Path, buckets: str
) -> None:
    """The fault: buckets of the user's file that are filtered out without a word."""
    config.write_text(config.read_text().replace("[8, 16]", buckets))
    ended = run_cli("compile", config, "--cache-dir", "cache")
    assert (ended.code, ended.stdout) == (1, "")
    (fault,) = ended.stderr.splitlines()[1:]
    assert f"neuron_config.num_batched_tokens_buckets: {buckets} must end in 16" in fault
    assert fault.endswith("write [8, 16]")


def test_a_bucket_that_is_not_compiled_is_named_with_the_reason(config: Path) -> None:
    """The fault: more rows than KV blocks are compiled, or left out silently."""
    config.write_text(
        config.read_text().replace("max_model_len: 64", "max_model_len: 16")
        + "num_gpu_blocks_override: 3\n"
    )
    ended = run_cli("compile", config, "--dry-run", "--cache-dir", "cache")
    assert ended.code == 0
    assert "decode_b2_c16" in ended.stdout and "decode_b4_c16" not in ended.stdout
    assert (
        "warning: decode_b4_c16 is not compiled: no decode step has more than 2 requests, which 2"
        " already holds\n"
    ) in ended.stderr


def test_a_machine_without_a_compiler_is_told_so_at_once(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: the missing toolchain is an error of the last stage, deep inside the compiler."""
    monkeypatch.setenv("PATH", "")
    ended = run_cli("compile", config, "--cache-dir", "cache")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: no C++ compiler: `g++` is not on PATH\n\nhint: ")


def test_a_cache_that_cannot_be_written_is_an_error_and_no_miss(config: Path) -> None:
    """The fault: a cache that is never used, and everything is compiled again each time."""
    Path("cache").write_text("a file is in the way")
    ended = run_cli("compile", config, "--cache-dir", "cache")
    assert (ended.code, ended.stdout) == (1, "")
    assert "`cache` cannot be written" in ended.stderr


def test_a_folder_that_takes_no_artifact_is_told_before_the_graphs_are_built(config: Path) -> None:
    """The fault: what cannot be kept is noticed after hours of building, without a way out."""
    Path("file").write_text("")
    ended = run_cli("compile", config, "--cache-dir", "cache", "--artifacts-dir", "file")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: artifacts cannot be written to `file`: not a directory\n\n"
        "hint: name another folder with `--artifacts-dir`\n"
    )
    assert not Path("cache").exists()


def test_the_name_of_the_latest_link_is_no_name_for_an_artifact(config: Path) -> None:
    """The fault: one such artifact, and no later one can become the latest."""
    config.rename("latest.yaml")
    ended = run_cli("compile", "latest.yaml", "--cache-dir", "cache")
    assert ended.code == 1
    assert ended.stderr.endswith("link to the latest artifact; rename the file\n")


def test_a_torch_that_takes_no_instruction_set_is_refused(
    llama_model: Path, empty_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler's options for C++, without the one that newer releases have.
    monkeypatch.setattr("torch._inductor.config", SimpleNamespace(cpp=object()))
    Path("tiny.yaml").write_text(f"model: {llama_model}\nmax_model_len: 64\nmax_num_seqs: 1\n")
    ended = run_cli("compile", "tiny.yaml", "--cache-dir", "cache")
    assert ended.code == 1
    assert "backend `cpu` cannot compile with torch" in ended.stderr
    assert "install a newer one" in ended.stderr
