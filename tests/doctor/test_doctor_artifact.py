"""Whether an artifact runs here: every reason at once, and no graph loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from manifest_edits import edit_manifest

from neuron_llm.artifact.held_memory import HeldMemory
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.doctor.artifact_check import ArtifactReport, check_artifact
from neuron_llm.doctor.device import Device
from neuron_llm.doctor.finding import Finding, Status

PLENTY = 2**40
GRAPH = "graphs/decode_b1_c64"


@pytest.fixture
def artifact(tiny_artifact: Path, tmp_path: Path) -> Path:
    """A copy of the compiled Llama, to be damaged."""
    copy = tmp_path / "tiny"
    shutil.copytree(tiny_artifact, copy)
    return copy


def check(artifact: Path, available: int | None = PLENTY, *devices: Device) -> ArtifactReport:
    return check_artifact(artifact, available_bytes=available, devices=devices)


def obstacles(report: ArtifactReport) -> list[tuple[str, str]]:
    return [(f.subject, f.text) for f in report.findings if f.is_decisive]


def about(subject: str, report: ArtifactReport) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.subject == subject]
    return finding


def device(target: str | None) -> Device:
    return Device(
        index=0,
        name=None,
        target=target,
        num_cores=2,
        logical_nc_config=None,
        memory_bytes=None,
        processes=(),
        has_node=True,
    )


def test_a_good_artifact_is_all_well(tiny_artifact: Path) -> None:
    report = check(tiny_artifact)
    assert [finding.status for finding in report.findings] == [Status.OK] * 4
    manifest = read_manifest(tiny_artifact)
    assert (report.artifact_id, report.backend) == (manifest.artifact_id, "cpu")
    assert about("files", report).text.startswith(f"{len(list(manifest.all_files()))} files, ")
    assert about("backend", report).text.startswith("compiled with torch ")


def test_the_memory_is_weights_and_kv_cache(tiny_artifact: Path) -> None:
    manifest = read_manifest(tiny_artifact)
    blocks, heads, head_dim, layers = (
        manifest.settings.num_blocks,
        manifest.model.num_kv_heads,
        manifest.model.head_dim,
        manifest.model.num_layers,
    )
    kv_bytes = blocks * 4 * heads * head_dim * 2 * 4 * layers
    assert HeldMemory.of(manifest).total_bytes == manifest.weights.file.size_bytes + kv_bytes


def test_too_little_memory_decides_at_the_byte(tiny_artifact: Path) -> None:
    needed = check(tiny_artifact).needed_bytes
    assert needed is not None
    assert obstacles(check(tiny_artifact, needed)) == []
    ((subject, text),) = obstacles(check(tiny_artifact, needed - 1))
    assert subject == "memory for it"
    assert "do not fit into the" in text


def test_unknown_memory_is_a_note(tiny_artifact: Path) -> None:
    assert about("memory for it", check(tiny_artifact, None)).status is Status.NOTE


def test_an_artifact_for_a_wider_cpu_names_what_is_missing(artifact: Path) -> None:
    def widen(manifest: dict[str, Any]) -> None:
        manifest["requirements"]["cpu_features"].append("avx1024_vnni")

    edit_manifest(artifact, widen)
    ((subject, text),) = obstacles(check(artifact))
    assert subject == "backend"
    assert "avx1024_vnni" in text


def test_an_artifact_of_another_torch_names_both(artifact: Path) -> None:
    edit_manifest(artifact, lambda manifest: manifest["backend_versions"].update(torch="2.9.0"))
    report = check(artifact)
    ((subject, text),) = obstacles(report)
    assert subject == "backend"
    assert "torch 2.9.0" in text
    assert about("backend", report).hint is not None


def test_every_reason_is_told_at_once(artifact: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["requirements"]["cpu_features"].append("avx1024_vnni")
        manifest["backend_versions"]["torch"] = "2.9.0"

    edit_manifest(artifact, change)
    (artifact / GRAPH / "graph.so").unlink()
    weights = artifact / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (artifact / "config.json").unlink()
    found = obstacles(check(artifact, 1))
    size = read_size(artifact, "weights.safetensors")
    assert [subject for subject, _ in found if subject.startswith(GRAPH)] == [f"{GRAPH}/graph.so"]
    assert ("weights.safetensors", f"100 bytes; the manifest says {size}") in found
    assert ("config.json", "missing") in found
    assert len([subject for subject, _ in found if subject == "backend"]) == 2
    assert found[-1][0] == "memory for it"


def read_size(artifact: Path, name: str) -> int:
    manifest = json.loads((artifact / "manifest.json").read_text())
    size: int = manifest["weights"]["file"]["size_bytes"]
    assert manifest["weights"]["file"]["path"] == name
    return size


def test_a_graph_of_the_right_size_but_other_content_decides(artifact: Path) -> None:
    graph = artifact / GRAPH / "graph.so"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    ((subject, text),) = obstacles(check(artifact))
    assert subject == f"{GRAPH}/graph.so"
    assert "checksum" in text


def test_a_manifest_that_was_changed_decides(artifact: Path) -> None:
    edit_manifest(artifact, lambda manifest: manifest.update(name="other"), keep_id=True)
    ((subject, text),) = obstacles(check(artifact))
    assert subject == "artifact"
    assert "was changed after compiling" in text


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 100_000, b"\xff", b'{"schema_version": 99}']
)
def test_a_manifest_that_cannot_be_read_is_one_reason(artifact: Path, content: bytes) -> None:
    (artifact / "manifest.json").write_bytes(content)
    report = check(artifact)
    assert [finding.subject for finding in report.findings] == ["artifact"]
    assert report.findings[0].is_decisive
    assert (report.artifact_id, report.needed_bytes) == (None, None)


@pytest.mark.parametrize("name", ["", "nowhere", "file"])
def test_a_path_that_is_no_artifact_is_one_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    ((subject, text),) = obstacles(check(tmp_path / name))
    assert subject == "artifact"
    assert "is no artifact" in text or "cannot be read" in text


def test_a_path_that_leads_out_of_the_artifact_decides(artifact: Path) -> None:
    def leave(manifest: dict[str, Any]) -> None:
        manifest["files"][0]["path"] = "../elsewhere"

    edit_manifest(artifact, leave)
    assert any("outside the artifact" in text for _, text in obstacles(check(artifact)))


def test_a_torch_that_is_gone_is_a_reason(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import PackageNotFoundError

    def gone() -> dict[str, str]:
        raise PackageNotFoundError("torch")

    monkeypatch.setattr("neuron_llm.backends.cpu.backend.library_versions", gone)
    assert obstacles(check(tiny_artifact)) == [("backend", "torch is not installed")]


def test_a_cpu_that_cannot_be_read_is_a_reason(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> list[str]:
        raise PermissionError(13, "Permission denied", "/proc/cpuinfo")

    monkeypatch.setattr("neuron_llm.backends.cpu.backend.cpu_features", unreadable)
    ((subject, text),) = obstacles(check(tiny_artifact))
    assert subject == "backend"
    assert "/proc/cpuinfo" in text


def neuron_artifact(artifact: Path, target: str) -> Path:
    def change(manifest: dict[str, Any]) -> None:
        manifest["backend"] = "neuron"
        manifest["config"]["neuron_config"]["target"] = target

    edit_manifest(artifact, change)
    return artifact


def test_a_neuron_artifact_without_devices_cannot_run(artifact: Path) -> None:
    found = dict(obstacles(check(neuron_artifact(artifact, "trn2"))))
    assert found["target"] == "compiled for `trn2`, but there is no device"


@pytest.mark.parametrize(
    ("target", "here", "fits"),
    [
        ("trn2", "trn2", True),
        ("inf2", "trn1", True),
        ("trn1n", "inf2", True),
        ("trn2", "inf2", False),
        ("inf2", None, False),
    ],
)
def test_a_neuron_artifact_is_for_one_generation(
    artifact: Path, target: str, here: str | None, fits: bool
) -> None:
    report = check(neuron_artifact(artifact, target), PLENTY, device(here))
    finding = about("target", report)
    assert finding.is_decisive is not fits
    if not fits:
        shown = f"`{here}`" if here else "of an unknown kind"
        assert finding.text == f"compiled for `{target}`, but the devices are {shown}"
