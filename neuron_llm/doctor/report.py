"""The whole diagnosis: what was asked, every finding, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neuron_llm.doctor.artifact_check import ArtifactReport, check_artifact
from neuron_llm.doctor.devices import DeviceReport, probe_devices
from neuron_llm.doctor.environment import probe_environment, shown_variables
from neuron_llm.doctor.finding import Finding
from neuron_llm.doctor.host import Host
from neuron_llm.doctor.machine import MachineReport, probe_machine
from neuron_llm.doctor.neuron_packages import NEURON_PACKAGES, probe_neuron_packages
from neuron_llm.doctor.packages import MAIN_PACKAGES, probe_packages, read_package
from neuron_llm.version import __version__

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Question:
    """What is to be looked at.

    Attributes:
        artifact: whether it can run here; None for the CPU backend in general.
        cache_dir: the compile cache.
        artifacts_dir: where artifacts go.
    """

    artifact: Path | None
    cache_dir: Path
    artifacts_dir: Path

    @property
    def subject(self) -> str:
        """What the verdict is about."""
        return "the CPU backend" if self.artifact is None else f"`{self.artifact}`"


@dataclass(frozen=True)
class Section:
    """The findings of one probe."""

    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Report:
    """The diagnosis.

    Attributes:
        subject: what the verdict is about.
        sections: every finding.
        facts: the same for machines, as far as it is more than words.
    """

    subject: str
    sections: tuple[Section, ...]
    facts: dict[str, Any]

    @property
    def obstacles(self) -> list[Finding]:
        """The findings because of which what was asked for cannot run here."""
        return [
            finding
            for section in self.sections
            for finding in section.findings
            if finding.is_decisive
        ]

    @property
    def can_run(self) -> bool:
        """Whether what was asked for can run here."""
        return not self.obstacles

    def to_json(self) -> dict[str, Any]:
        """Return the document that machines read."""
        return {
            "schema_version": SCHEMA_VERSION,
            "neuron_llm_version": __version__,
            "subject": self.subject,
            "can_run": self.can_run,
            "decided_by": [finding.subject for finding in self.obstacles],
            "sections": {
                section.title: [asdict(finding) for finding in section.findings]
                for section in self.sections
            },
            **self.facts,
        }


def examine(host: Host, question: Question) -> Report:
    """Look at everything. What is broken is a finding, never an error."""
    device_report = probe_devices(host)
    devices = device_report.devices
    machine = probe_machine(
        host, cache_dir=question.cache_dir, artifacts_dir=question.artifacts_dir
    )
    environment = probe_environment(host.environ, num_cpus=machine.num_cpus, devices=devices)
    sections = [
        Section("packages", tuple(probe_packages(host))),
        Section("neuron packages", tuple(probe_neuron_packages(host))),
        Section("neuron devices", device_report.findings),
        Section("machine", machine.findings),
        Section("environment", tuple(environment)),
    ]
    facts = {
        "packages": _package_facts(host),
        "devices": _device_facts(device_report),
        "machine": _machine_facts(machine),
        "environment": shown_variables(host.environ),
    }
    if question.artifact is not None:
        artifact = check_artifact(
            question.artifact, available_bytes=machine.memory.available_bytes, devices=devices
        )
        sections.append(Section("artifact", artifact.findings))
        facts["artifact"] = _artifact_facts(question.artifact, artifact)
    return Report(question.subject, tuple(sections), facts)


def _package_facts(host: Host) -> dict[str, dict[str, Any] | None]:
    facts: dict[str, dict[str, Any] | None] = {}
    for name in (*MAIN_PACKAGES, *NEURON_PACKAGES):
        package = read_package(name, host.package_path)
        facts[name] = None
        if package is not None:
            facts[name] = {"version": package.version, "is_stub": package.is_stub}
    return facts


def _device_facts(report: DeviceReport) -> dict[str, Any]:
    return {
        "driver_version": report.driver_version,
        "instance_type": report.instance_type,
        "devices": [asdict(device) for device in report.devices],
    }


def _machine_facts(report: MachineReport) -> dict[str, Any]:
    return {
        "num_cpus": report.num_cpus,
        "cpu_features": report.cpu_features,
        "isa_level": report.isa_level,
        "total_memory_bytes": report.memory.total_bytes,
        "available_memory_bytes": report.memory.available_bytes,
        "free_disk_bytes": report.free_disk_bytes,
    }


def _artifact_facts(directory: Path, report: ArtifactReport) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "artifact_id": report.artifact_id,
        "backend": report.backend,
        "needed_memory_bytes": report.needed_bytes,
    }
