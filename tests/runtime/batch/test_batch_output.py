"""The output file of a batch job has one writer at a time."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.output_file import begin_output, open_output

PROMPTS = Path("none.jsonl")


@pytest.mark.parametrize("exists", [True, False])
def test_two_runs_do_not_write_one_file(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "out.jsonl"
    if exists:
        path.write_bytes(b"old\n")
    with open_output(path, prompts=PROMPTS, force=True) as first:
        with (
            pytest.raises(NeuronLLMError, match="another run is writing `"),
            open_output(path, prompts=PROMPTS, force=True),
        ):
            raise AssertionError
        begin_output(first)
        first.write(b"mine\n")
    assert path.read_bytes() == b"mine\n"
    with open_output(path, prompts=PROMPTS, force=True) as second:
        begin_output(second)
    assert path.read_bytes() == b""


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"theirs\n")
    # As a run saw it that looked before the other one created the file.
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with (
        pytest.raises(NeuronLLMError, match="exists already"),
        open_output(path, prompts=PROMPTS, force=False),
    ):
        raise AssertionError
    assert path.read_bytes() == b"theirs\n"


def test_a_new_file_goes_again_if_nothing_was_written(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(KeyError), open_output(path, prompts=PROMPTS, force=False):
        raise KeyError
    assert not path.exists()
    with pytest.raises(KeyError), open_output(path, prompts=PROMPTS, force=False) as stream:
        stream.write(b"record\n")
        raise KeyError
    assert path.read_bytes() == b"record\n"


def test_a_device_has_many_writers() -> None:
    null = Path("/dev/null")
    with (
        open_output(null, prompts=PROMPTS, force=False) as first,
        open_output(null, prompts=PROMPTS, force=False) as second,
    ):
        begin_output(first)
        second.write(b"gone")


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """Let no file become longer, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("exists", [True, False])
def test_a_disk_without_room_cuts_no_record_in_two(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "out.jsonl"
    if exists:
        path.write_bytes(b"older records\n")
    with (
        pytest.raises(NeuronLLMError, match=r"cannot write `.*out\.jsonl`: file too large"),
        open_output(path, prompts=PROMPTS, force=True) as stream,
    ):
        begin_output(stream)
        stream.write(b"first\n")
        with room_for(9):
            stream.write(b"second\n")
    assert path.read_bytes() == b"first\n"


def test_a_record_without_room_for_any_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with (
        pytest.raises(NeuronLLMError, match="file too large"),
        open_output(path, prompts=PROMPTS, force=False) as stream,
        room_for(3),
    ):
        stream.write(b"first\n")
    assert not path.exists()


def test_a_full_device_is_named() -> None:
    with (
        pytest.raises(NeuronLLMError, match="cannot write `/dev/full`: no space left on device"),
        open_output(Path("/dev/full"), prompts=PROMPTS, force=False) as stream,
    ):
        stream.write(b"first\n")
