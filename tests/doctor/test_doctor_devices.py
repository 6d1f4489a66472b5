"""Neuron devices as the node, sysfs and `neuron-ls` tell them, whole and in part."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_host import (
    commands_of,
    recorded_host,
    recording,
    write,
    write_device,
    write_program,
)

from neuron_llm.backends.neuron.command import CommandResult
from neuron_llm.doctor.devices import DeviceReport, probe_devices
from neuron_llm.doctor.finding import Finding, Status
from neuron_llm.doctor.host import Host

GIB = 2**30
LIST = "neuron-ls --json-output"
OPEN = "os.O_RDWR"
OPENED = CommandResult(0, stdout="0\n0\n")


def inf2(root: Path) -> None:
    """Two Inferentia2 devices with driver and tools."""
    write_device(root, 0)
    write_device(root, 1)
    write(root, "/sys/module/neuron/version", "2.30.2.0\n")
    write_program(root, "neuron-ls")


def probe(root: Path, **answers: CommandResult) -> DeviceReport:
    words = {"list": LIST, "open": OPEN}
    recorded = {words[name]: answer for name, answer in answers.items()}
    report = probe_devices(recorded_host(root, recorded))
    assert not any(finding.is_decisive for finding in report.findings)
    return report


def about(subject: str, report: DeviceReport) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.subject == subject]
    return finding


def test_inf2_with_two_devices(tmp_path: Path) -> None:
    inf2(tmp_path)
    report = probe(tmp_path, list=recording("neuron-ls-inf2.json"), open=OPENED)
    assert [(f.subject, f.status, f.text) for f in report.findings] == [
        ("neuron0 to neuron1", Status.OK, "Inferentia2, 2 cores, 32 GiB HBM each"),
        ("driver", Status.OK, "2.30.2.0"),
        ("neuron-ls", Status.OK, f"`{tmp_path}/bin/neuron-ls`"),
        ("/dev/neuron0", Status.OK, "this user can open `/dev/neuron0` and `/dev/neuron1`"),
    ]
    assert [(d.target, d.num_cores, d.memory_bytes) for d in report.devices] == [
        ("inf2", 2, 32 * GIB),
        ("inf2", 2, 32 * GIB),
    ]
    assert report.driver_version == "2.30.2.0"


def test_trn2_with_logical_cores_and_a_process_on_them(tmp_path: Path) -> None:
    write_device(tmp_path, 0, name="Trainium2", instance="Trn2", cores=8)
    write_program(tmp_path, "neuron-ls")
    report = probe(
        tmp_path, list=recording("neuron-ls-trn2.json"), open=CommandResult(0, stdout="0\n")
    )
    (device,) = report.devices
    assert (device.target, device.num_cores, device.logical_nc_config) == ("trn2", 4, 2)
    text = "Trainium2, 4 cores of 2 physical ones, 96 GiB HBM"
    assert about("neuron0", report).text == text
    processes = about("processes", report)
    assert processes.status is Status.NOTE
    assert processes.text == "already on the devices: 4711 (`python3 serve.py --port...`), 4712"


def test_no_device_is_a_note_and_runs_nothing(tmp_path: Path) -> None:
    host = recorded_host(tmp_path)
    report = probe_devices(host)
    (finding,) = report.findings
    assert (finding.status, finding.text) == (Status.NOTE, "none: there is no `/dev/neuron0`")
    assert report.devices == ()
    assert commands_of(host) == []


@pytest.mark.parametrize("instance", ["inf2.24xlarge", "trn1.2xlarge", "trn2u.48xlarge"])
def test_an_instance_with_devices_but_no_driver(tmp_path: Path, instance: str) -> None:
    write(tmp_path, "/sys/devices/virtual/dmi/id/product_name", f"{instance}\n")
    report = probe(tmp_path)
    (finding,) = report.findings
    assert finding.status is Status.PROBLEM
    assert finding.text.endswith(f"the driver is not loaded; this is a `{instance}`")
    assert finding.command == "sudo apt-get install aws-neuronx-dkms"
    assert report.instance_type == instance


def test_another_instance_without_devices_is_a_note(tmp_path: Path) -> None:
    write(tmp_path, "/sys/devices/virtual/dmi/id/product_name", "c7a.xlarge\n")
    assert probe(tmp_path).findings[0].status is Status.NOTE


def test_tools_without_a_driver(tmp_path: Path) -> None:
    write_program(tmp_path, "neuron-ls", folder="/opt/aws/neuron/bin")
    (finding,) = probe(tmp_path).findings
    assert finding.status is Status.PROBLEM
    assert finding.text.endswith("the driver is not loaded; AWS's tools are installed")


def test_a_driver_without_devices_points_to_the_container(tmp_path: Path) -> None:
    write(tmp_path, "/sys/module/neuron/version", "2.31.7.0\n")
    (finding,) = probe(tmp_path).findings
    assert finding.status is Status.PROBLEM
    assert finding.text.endswith("though the driver 2.31.7.0 is loaded")
    assert finding.hint == "in a container, pass the devices on: `--device /dev/neuron0`"


def test_devices_that_a_container_was_not_given(tmp_path: Path) -> None:
    inf2(tmp_path)
    (tmp_path / "dev/neuron1").unlink()
    report = probe(
        tmp_path, list=recording("neuron-ls-inf2.json"), open=CommandResult(0, stdout="0\n")
    )
    missing = about("/dev/neuron1", report)
    assert missing.status is Status.PROBLEM
    assert missing.hint == "in a container, pass it on: `--device /dev/neuron1`"
    assert about("/dev/neuron0", report).text == "this user can open `/dev/neuron0`"


def test_a_user_outside_the_group_is_told_which_to_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inf2(tmp_path)
    monkeypatch.setattr("neuron_llm.doctor.devices.group_that_can_open", lambda path: "neuron")
    denied = CommandResult(0, stdout=f"{errno.EACCES}\n" * 2)
    report = probe(tmp_path, list=recording("neuron-ls-inf2.json"), open=denied)
    finding = about("/dev/neuron0", report)
    assert finding.status is Status.PROBLEM
    assert finding.text == (
        "this user cannot open `/dev/neuron0` and `/dev/neuron1`: permission denied;"
        " the group `neuron` can"
    )
    assert finding.command == "sudo usermod -aG neuron $USER"


def test_a_device_that_only_root_can_open(tmp_path: Path) -> None:
    inf2(tmp_path)
    for index in range(2):
        (tmp_path / f"dev/neuron{index}").chmod(0o600)
    denied = CommandResult(0, stdout=f"{errno.EACCES}\n" * 2)
    report = probe(tmp_path, list=recording("neuron-ls-inf2.json"), open=denied)
    finding = about("/dev/neuron0", report)
    assert finding.text.endswith("permission denied; only root can")
    assert finding.command is not None
    assert finding.command.startswith("sudo chgrp neuron")


def test_a_container_that_forbids_some_devices(tmp_path: Path) -> None:
    inf2(tmp_path)
    partly = CommandResult(0, stdout=f"0\n{errno.EPERM}\n")
    report = probe(tmp_path, list=recording("neuron-ls-inf2.json"), open=partly)
    assert about("/dev/neuron0", report).status is Status.OK
    refused = about("/dev/neuron1", report)
    assert refused.text.endswith("operation not permitted")
    assert refused.hint == "in a container, pass it on: `--device /dev/neuron1`"


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(None, failure="did not answer within 10 s"),
        CommandResult(0, stdout="0\n"),
        CommandResult(0, stdout="what\never\n"),
        CommandResult(0, stdout=f"{errno.EIO}\n{errno.EIO}\n"),
    ],
)
def test_opening_that_hangs_or_answers_nonsense_is_a_problem(
    tmp_path: Path, answer: CommandResult
) -> None:
    inf2(tmp_path)
    report = probe(tmp_path, list=recording("neuron-ls-inf2.json"), open=answer)
    finding = about("/dev/neuron0", report)
    assert finding.status is Status.PROBLEM
    assert finding.hint == "the driver's log may tell why: `sudo dmesg`"


def test_without_neuron_ls_sysfs_and_the_chip_tell(tmp_path: Path) -> None:
    inf2(tmp_path)
    (tmp_path / "bin/neuron-ls").unlink()
    report = probe(tmp_path, open=OPENED)
    assert about("neuron0 to neuron1", report).text == "Inferentia2, 2 cores, 32 GiB HBM each"
    finding = about("neuron-ls", report)
    assert finding.status is Status.NOTE
    assert finding.command == "sudo apt-get install aws-neuronx-tools"


def test_trn2_by_sysfs_alone_counts_physical_cores(tmp_path: Path) -> None:
    write_device(tmp_path, 0, name="Trainium2", instance="Trn2", cores=8)
    report = probe(tmp_path, open=CommandResult(0, stdout="0\n"))
    assert about("neuron0", report).text == "Trainium2, 8 cores, 96 GiB HBM"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (CommandResult(None, failure="did not answer within 10 s"), "did not answer within 10 s"),
        (CommandResult(1, stderr='level=error msg="no device"\n'), 'level=error msg="no device"'),
        (CommandResult(1, stdout="unknown flag\n"), "unknown flag"),
        (CommandResult(-11), "died of SIGSEGV"),
        (CommandResult(0), "it printed something else than a list of devices"),
        (CommandResult(0, stdout="+---+\n| NEURON |"), "it printed something else than"),
        (CommandResult(0, stdout='{"devices": []}'), "it printed something else than"),
        (CommandResult(0, stdout='[{"neuron_device": "0"}]'), "it printed something else than"),
        (CommandResult(0, stdout="[" * 100_000), "it printed something else than"),
        (CommandResult(0, stdout='[{"neuron_device": ' + "9" * 5000 + "}]"), "it printed"),
    ],
)
def test_neuron_ls_that_is_of_no_use_leaves_sysfs(
    tmp_path: Path, answer: CommandResult, reason: str
) -> None:
    inf2(tmp_path)
    report = probe(tmp_path, list=answer, open=OPENED)
    finding = about("neuron-ls", report)
    assert finding.status is Status.PROBLEM
    assert finding.text.partition("sysfs was read instead: ")[2].startswith(reason)
    assert [device.num_cores for device in report.devices] == [2, 2]


def test_sysfs_that_is_half_there(tmp_path: Path) -> None:
    folder = "/sys/devices/virtual/neuron_device"
    write(tmp_path, "/dev/neuron0", "")
    write(tmp_path, f"{folder}/neuron0/core_count", "many\n")
    write(tmp_path, f"{folder}/neuron0/neuron_core0/info/x", "")
    write(tmp_path, f"{folder}/neuron0/neuron_core1/info/x", "")
    (tmp_path / folder.lstrip("/") / "neuron1").mkdir()
    (tmp_path / "dev/neuron1").mkdir()
    report = probe(tmp_path, open=OPENED)
    assert about("neuron0", report).text == "a chip that nothing names, 2 cores, HBM unknown"
    unknown = "a chip that nothing names, an unknown number of cores, HBM unknown"
    assert about("neuron1", report).text == unknown
    assert about("driver", report).status is Status.NOTE


def test_other_names_beside_the_devices_are_none(tmp_path: Path) -> None:
    write_device(tmp_path, 0)
    for name in ("neuron", "neuron_core0", "neuronx1", "neuron0p1"):
        write(tmp_path, f"/dev/{name}", "")
    report = probe(tmp_path, open=CommandResult(0, stdout="0\n"))
    assert [device.index for device in report.devices] == [0]


def test_many_devices_are_one_line(tmp_path: Path) -> None:
    for index in range(16):
        write_device(tmp_path, index, name="Trainium2", instance="Trn2", cores=8)
    report = probe(tmp_path, open=CommandResult(0, stdout="0\n" * 16))
    assert about("neuron0 to neuron15", report).text == "Trainium2, 8 cores, 96 GiB HBM each"
    text = "this user can open `/dev/neuron0` to `/dev/neuron15` (16 devices)"
    assert about("/dev/neuron0", report).text == text


def test_a_real_open_answers_for_every_device(tmp_path: Path) -> None:
    write_device(tmp_path, 0)
    (tmp_path / "dev/neuron1").mkdir()
    host = Host.this_machine({"PATH": ""})
    report = probe_devices(replace(host, root=tmp_path))
    texts = [f.text for f in report.findings if f.subject.startswith("/dev/")]
    assert texts == [
        "this user can open `/dev/neuron0`",
        "this user cannot open `/dev/neuron1`: is a directory",
    ]
