"""Processors, compilers, memory and disk, also where the system does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_host import recorded_host, write, write_program

from neuron_llm.artifact.machine_memory import Memory, read_memory
from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.neuron.command import CommandResult
from neuron_llm.doctor.compilers import probe_compilers
from neuron_llm.doctor.finding import Finding, Status
from neuron_llm.doctor.machine import MachineReport, probe_machine
from neuron_llm.quantities import whole_number

GIB = 2**30
AVX2 = "avx avx2 bmi1 bmi2 f16c fma movbe sse4_2"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
DEBIAN = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022\n"
AMAZON = "g++ (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2)\n"
MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n"


def cpuinfo(flags: str) -> str:
    return f"processor\t: 0\nmodel name\t: AMD EPYC 7R13\nflags\t\t: fpu {flags}\n"


def probe(root: Path, cache_dir: Path | None = None) -> MachineReport:
    report = probe_machine(
        recorded_host(root),
        cache_dir=root / "cache" if cache_dir is None else cache_dir,
        artifacts_dir=root / "artifacts",
    )
    assert not any(finding.is_decisive for finding in report.findings)
    return report


def about(subject: str, report: MachineReport) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.subject == subject]
    return finding


@pytest.mark.parametrize(
    ("flags", "level", "text"),
    [
        (f"{AVX512} avx512_bf16", IsaLevel.AVX512_BF16, "widest level `avx512_bf16`"),
        (AVX512, IsaLevel.AVX512, "`avx512_bf16` would need `avx512_bf16`"),
        (AVX2, IsaLevel.AVX2, "`avx512` would need `avx512bw`, `avx512cd`"),
        ("sse4_2", IsaLevel.PORTABLE, "`avx2` would need `avx2`, `bmi1`"),
    ],
)
def test_the_widest_level_and_what_the_next_would_need(
    tmp_path: Path, flags: str, level: IsaLevel, text: str
) -> None:
    write(tmp_path, "/proc/cpuinfo", cpuinfo(flags))
    report = probe(tmp_path)
    assert report.isa_level is level
    finding = about("instruction sets", report)
    assert finding.status is Status.OK
    assert text in finding.text
    assert about("cpu", report).text.startswith("AMD EPYC 7R13, ")


@pytest.mark.parametrize("text", [None, "", "nonsense\n", "flags : fpu\n"])
def test_a_cpu_that_cannot_be_read_is_a_note(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        write(tmp_path, "/proc/cpuinfo", text)
    report = probe(tmp_path)
    assert (report.cpu_features, report.isa_level) == (None, None)
    assert about("instruction sets", report).status is Status.NOTE


def test_bytes_in_cpuinfo_that_are_no_text_are_a_note(tmp_path: Path) -> None:
    write(tmp_path, "/proc/cpuinfo", "").write_bytes(b"flags : \xff\xfe\n")
    assert about("instruction sets", probe(tmp_path)).status is Status.NOTE


def test_memory_of_the_machine(tmp_path: Path) -> None:
    write(tmp_path, "/proc/meminfo", MEMINFO)
    assert read_memory(recorded_host(tmp_path).read) == Memory(16 * GIB, 8 * GIB)
    assert about("memory", probe(tmp_path)).text == "8 GiB of 16 GiB available"


def test_a_container_has_its_limit_less_what_it_uses(tmp_path: Path) -> None:
    write(tmp_path, "/proc/meminfo", MEMINFO)
    write(tmp_path, "/proc/self/cgroup", "0::/\n")
    write(tmp_path, "/sys/fs/cgroup/memory.max", f"{4 * GIB}\n")
    write(tmp_path, "/sys/fs/cgroup/memory.current", f"{3 * GIB}\n")
    write(tmp_path, "/sys/fs/cgroup/memory.stat", f"anon 1\ninactive_file {GIB}\n")
    assert read_memory(recorded_host(tmp_path).read) == Memory(4 * GIB, 2 * GIB, is_limited=True)
    text = "2 GiB of 4 GiB available, by the limit of this control group"
    assert about("memory", probe(tmp_path)).text == text


def test_a_group_that_uses_more_than_its_limit_has_nothing_left(tmp_path: Path) -> None:
    write(tmp_path, "/proc/meminfo", MEMINFO)
    write(tmp_path, "/sys/fs/cgroup/memory.max", str(4 * GIB))
    write(tmp_path, "/sys/fs/cgroup/memory.current", str(5 * GIB))
    assert read_memory(recorded_host(tmp_path).read) == Memory(4 * GIB, 0, is_limited=True)


def test_the_tightest_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    write(tmp_path, "/proc/meminfo", MEMINFO)
    write(tmp_path, "/proc/self/cgroup", "0::/user.slice/job.scope\n")
    for group, limit in (("user.slice", GIB), ("user.slice/job.scope", 2 * GIB)):
        write(tmp_path, f"/sys/fs/cgroup/{group}/memory.max", str(limit))
        write(tmp_path, f"/sys/fs/cgroup/{group}/memory.current", "0")
    assert read_memory(recorded_host(tmp_path).read).available_bytes == GIB


@pytest.mark.parametrize("limit", ["max", "", "9" * 30, "-1"])
def test_a_group_without_a_limit_limits_nothing(tmp_path: Path, limit: str) -> None:
    write(tmp_path, "/proc/meminfo", MEMINFO)
    write(tmp_path, "/sys/fs/cgroup/memory.max", limit)
    write(tmp_path, "/sys/fs/cgroup/memory.current", "1")
    assert read_memory(recorded_host(tmp_path).read) == Memory(16 * GIB, 8 * GIB)


def test_memory_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    assert about("memory", probe(tmp_path)).status is Status.NOTE


def test_a_folder_that_is_not_there_yet_has_the_disk_of_the_one_above(tmp_path: Path) -> None:
    report = probe(tmp_path, cache_dir=tmp_path / "not" / "yet")
    finding = about("disk of the compile cache", report)
    assert finding.status in (Status.OK, Status.NOTE)
    assert finding.text.endswith(f"free for `{tmp_path}/not/yet`")
    free = report.free_disk_bytes[str(tmp_path / "not" / "yet")]
    assert free is not None and free > 0


def test_a_file_where_the_cache_should_be_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, "/cache", "")
    finding = about("disk of the compile cache", probe(tmp_path))
    assert finding.status is Status.PROBLEM
    assert finding.text == f"`{tmp_path}/cache` is no folder"


def test_a_folder_that_cannot_be_written_to_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    finding = about("disk of the artifacts", probe(tmp_path))
    assert finding.status is Status.NOTE
    assert finding.text.endswith("but this user cannot write there")


def test_a_disk_that_is_nearly_full_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuron_llm.doctor.machine._free_bytes", lambda folder: 2**20)
    finding = about("disk of the artifacts", probe(tmp_path))
    assert finding.status is Status.NOTE
    assert finding.text.startswith("only 1 MiB free")


@pytest.mark.parametrize(("answer", "version"), [(DEBIAN, "12.2.0"), (AMAZON, "11.4.1")])
def test_gxx_that_knows_the_instructions(tmp_path: Path, answer: str, version: str) -> None:
    program = write_program(tmp_path, "g++")
    recorded = {"g++ --version": CommandResult(0, stdout=answer), "-march=": CommandResult(0)}
    host = recorded_host(tmp_path, recorded)
    (finding,) = probe_compilers(host, IsaLevel.AVX512)
    assert (finding.status, finding.text) == (Status.OK, f"{version}, `{program}`")


def test_gxx_that_is_too_old_for_this_cpu_is_a_problem(tmp_path: Path) -> None:
    write_program(tmp_path, "g++")
    refusal = CommandResult(1, stderr="error: bad value ('x86-64-v4') for '-march=' switch\n")
    recorded = {
        "g++ --version": CommandResult(0, stdout="g++ (Ubuntu 9.4.0-1) 9.4.0\n"),
        "-march=x86-64-v4": refusal,
    }
    (finding,) = probe_compilers(recorded_host(tmp_path, recorded), IsaLevel.AVX512)
    assert finding.status is Status.PROBLEM
    assert finding.text == (
        "9.4.0 cannot compile for this CPU: error: bad value ('x86-64-v4') for '-march=' switch"
    )


def test_no_gxx_is_a_note_since_running_needs_none(tmp_path: Path) -> None:
    (finding,) = probe_compilers(recorded_host(tmp_path), None)
    assert finding.status is Status.NOTE
    assert finding.command == "sudo apt-get install g++"


def test_gxx_that_hangs_is_a_problem(tmp_path: Path) -> None:
    write_program(tmp_path, "g++")
    recorded = {"g++": CommandResult(None, failure="did not answer within 60 s")}
    (finding,) = probe_compilers(recorded_host(tmp_path, recorded), None)
    assert finding.status is Status.PROBLEM


def test_neuronx_cc_on_path_with_its_version(tmp_path: Path) -> None:
    program = write_program(tmp_path, "neuronx-cc")
    text = "NeuronX Compiler version 2.27.5334.0+f702b353\n\nPython version 3.13.7\n"
    recorded = {"neuronx-cc --version": CommandResult(0, stdout=text)}
    finding = probe_compilers(recorded_host(tmp_path, recorded), None)[-1]
    assert finding.text == f"2.27.5334.0+f702b353, `{program}`"


@pytest.mark.parametrize(
    "answer",
    [CommandResult(1, stderr="ImportError: WRONG PACKAGE.\n"), CommandResult(0, stdout="hello")],
)
def test_neuronx_cc_that_does_not_work_is_a_problem(tmp_path: Path, answer: CommandResult) -> None:
    write_program(tmp_path, "neuronx-cc")
    finding = probe_compilers(recorded_host(tmp_path, {"neuronx-cc": answer}), None)[-1]
    assert finding.status is Status.PROBLEM


@given(st.text())
def test_any_text_is_a_whole_number_or_none(text: str) -> None:
    number = whole_number(text)
    assert number is None or 0 <= number < 10**18


@given(st.integers(min_value=0, max_value=10**18 - 1))
def test_a_whole_number_is_read_as_it_is_written(number: int) -> None:
    assert whole_number(f" {number}\n") == number
