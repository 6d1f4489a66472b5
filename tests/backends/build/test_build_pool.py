"""Builds that fail, are killed, or succeed on the second try."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from neuron_llm.backends.build.failure import BuildFailure, GraphBuildError
from neuron_llm.backends.build.pool import BuildTask, build_all, group_memory_bytes
from neuron_llm.backends.protocol import BuildEvent
from neuron_llm.errors import CompileError


def _succeed(marker: str) -> None:
    Path(marker).write_text("done")


def _fail(text: str) -> None:
    raise ValueError(text)


def _be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _succeed_second_time(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        sys.exit(3)


def run(tasks: list[BuildTask]) -> list[BuildEvent]:
    events: list[BuildEvent] = []
    build_all(tasks, num_jobs=2, preload=[], on_event=events.append)
    return events


def test_a_failing_build_is_named_with_its_log_and_takes_no_other_with_it(tmp_path: Path) -> None:
    log = tmp_path / "bad.log"
    events: list[BuildEvent] = []
    tasks = [
        BuildTask("prefill_t8", _fail, ("no such operator",), log),
        BuildTask("decode_b1_c64", _succeed, (str(tmp_path / "ok"),), tmp_path / "ok.log"),
    ]
    with pytest.raises(CompileError) as caught:
        build_all(tasks, num_jobs=2, preload=[], on_event=events.append)
    assert "1 of 2 graphs" in caught.value.message
    assert "prefill_t8: the compiler ended with exit code 1" in caught.value.message
    assert str(log) in caught.value.message
    assert "ValueError: no such operator" in log.read_text()
    assert (tmp_path / "ok").read_text() == "done"
    assert [e.status for e in events if e.graph == "prefill_t8"] == [
        "started", "retried", "started", "failed",
    ]  # fmt: skip
    assert [e.status for e in events if e.graph == "decode_b1_c64"] == ["started", "built"]


def test_a_script_that_is_run_again_in_every_process_is_told_so(tmp_path: Path) -> None:
    """What stands in no `if __name__ == "__main__":` is run by a build before anything else."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from neuron_llm.backends.build.pool import BuildTask, build_all\n"
        "if __name__ != '__main__': sys.exit(1)\n"
        "task = BuildTask('g', os.getpid, (), Path('g.log'))\n"
        "build_all([task], num_jobs=1, preload=[], on_event=lambda event: None)\n"
    )
    ended = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.endswith('does so below `if __name__ == "__main__":`') and "g.log" not in said


def test_a_build_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    task = BuildTask("g", _succeed_second_time, (str(tmp_path / "m"),), tmp_path / "log")
    assert [event.status for event in run([task])] == ["started", "retried", "started", "built"]


def test_a_killed_compiler_is_explained_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(GraphBuildError, match="killed, probably for want of host memory") as caught:
        run([BuildTask("g", _be_killed, (), tmp_path / "log")])
    assert caught.value.retry_options == ("--jobs", "1")
    assert caught.value.hint is not None and "`--jobs 1`" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "g++: fatal error: Killed signal terminated program cc1plus",
        "neuronx-cc failed with -9",
        "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to",
    ],
)
def test_a_compiler_that_was_killed_below_its_driver_is_explained_too(
    text: str, tmp_path: Path
) -> None:
    with pytest.raises(GraphBuildError, match="g: the compiler was killed, probably for want"):
        run([BuildTask("g", _fail, (text,), tmp_path / "log")])


def test_a_compiler_that_ended_for_another_reason_was_not_killed(tmp_path: Path) -> None:
    with pytest.raises(GraphBuildError, match="g: the compiler ended with exit code 1"):
        run([BuildTask("g", _fail, ("neuronx-cc failed with -90",), tmp_path / "log")])


def test_the_memory_that_a_killed_build_held_is_told(tmp_path: Path) -> None:
    failure = BuildFailure("g", -signal.SIGKILL, tmp_path / "log", memory_bytes=3 * 2**30)
    assert "(it held 3072 MiB when last looked at)" in failure.text
    assert failure.text.startswith("g: ") and failure.text.endswith(f"; log: {tmp_path / 'log'}")


def test_the_memory_of_a_group_is_that_of_its_processes() -> None:
    code = (
        "import os, time; os.setpgid(0, 0); data = b'x' * 2**26; print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 2**26 < group_memory_bytes(process.pid) < 2**27
        process.kill()
    assert group_memory_bytes(process.pid) == 0


def test_a_build_that_takes_too_long_is_ended_with_its_compiler_and_not_tried_again(
    tmp_path: Path,
) -> None:
    marker, events = tmp_path / "pids", list[BuildEvent]()
    tasks = [
        BuildTask("slow", _start_a_compiler, (str(marker),), tmp_path / "log"),
        BuildTask("quick", _succeed, (str(tmp_path / "ok"),), tmp_path / "ok.log"),
    ]
    with pytest.raises(GraphBuildError, match="1 of 2 graphs did not compile: slow: ") as caught:
        build_all(tasks, num_jobs=2, preload=[], on_event=events.append, timeout_s=5)
    assert "ended after 5 s, the limit of `--timeout`" in caught.value.message
    assert caught.value.retry_options == ()
    assert [e.status for e in events if e.graph == "slow"] == ["started", "failed"]
    assert (tmp_path / "ok").read_text() == "done"
    wait_until_gone([int(pid) for pid in marker.read_text().split()])


def _start_a_compiler(marker: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as compiler:
        Path(marker).write_text(f"{os.getpid()} {compiler.pid}")
        compiler.wait()


def _build_in_this_process(marker: str, log: str) -> None:
    run([BuildTask("g", _start_a_compiler, (marker,), Path(log))])


def wait_until_gone(pids: list[int]) -> None:
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], 20)
    assert alive == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_builders_and_their_compilers_end_with_whoever_asked_for_them(
    number: signal.Signals, tmp_path: Path
) -> None:
    marker = tmp_path / "pids"
    code = (
        "import sys, test_build_pool as t; "
        f"t._build_in_this_process({str(marker)!r}, {str(tmp_path / 'log')!r})"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as asking:
        while not (marker.exists() and len(marker.read_text().split()) == 2):
            assert asking.poll() is None
            time.sleep(0.02)
        asking.send_signal(number)
        asking.communicate()
    wait_until_gone([int(pid) for pid in marker.read_text().split()])
