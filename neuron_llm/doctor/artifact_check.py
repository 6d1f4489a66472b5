"""Whether an artifact can run here, and if not, every reason; no graph is loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from pydantic import ValidationError

from neuron_llm.artifact.held_memory import HeldMemory
from neuron_llm.artifact.manifest import (
    MANIFEST_FILE,
    Manifest,
    artifact_path,
    check_content,
    read_manifest,
)
from neuron_llm.backends.neuron.generations import runs_graphs_of
from neuron_llm.backends.registry import get_backend
from neuron_llm.doctor.device import Device
from neuron_llm.doctor.finding import Finding, note, obstacle, ok
from neuron_llm.errors import ArtifactError
from neuron_llm.quantities import shown_bytes

_COMPILE_HERE = "compile it on this machine: `neuron-llm compile CONFIG`"
_COPY_AGAIN = "copy the artifact again, or compile it again: `neuron-llm compile CONFIG`"


@dataclass(frozen=True, kw_only=True)
class ArtifactReport:
    """What was found.

    Attributes:
        findings: in words.
        artifact_id: of its manifest; None if that cannot be read.
        backend: what it was compiled for; None likewise.
        needed_bytes: weights and KV cache; None likewise.
    """

    findings: tuple[Finding, ...]
    artifact_id: str | None = None
    backend: str | None = None
    needed_bytes: int | None = None


def check_artifact(
    directory: Path, *, available_bytes: int | None, devices: Sequence[Device]
) -> ArtifactReport:
    """Return whether an artifact can run here.

    Files are compared with their recorded sizes, and all but the weights with their checksums.

    Args:
        directory: what `compile` wrote.
        available_bytes: memory that can be had; None if unknown.
        devices: of this machine, for an artifact of the neuron backend.
    """
    manifest, faults = _read(directory)
    if manifest is None:
        return ArtifactReport(findings=tuple(faults))
    held = HeldMemory.of(manifest)
    findings = [
        ok("artifact", f"`{manifest.name}`, id {manifest.artifact_id}, {manifest.backend} backend"),
        *(faults or _content_findings(directory, manifest)),
        *_backend_findings(manifest),
        *_target_findings(manifest, devices),
        _memory_finding(held, available_bytes),
    ]
    return ArtifactReport(
        findings=tuple(findings),
        artifact_id=manifest.artifact_id,
        backend=manifest.backend,
        needed_bytes=held.total_bytes,
    )


def _read(directory: Path) -> tuple[Manifest | None, list[Finding]]:
    """Return the manifest, if it can be read at all, and what is wrong with it or the files."""
    try:
        return read_manifest(directory), []
    except (ArtifactError, OSError) as error:
        first = _fault("artifact", error)
    try:
        text = (directory / MANIFEST_FILE).read_text(encoding="utf-8")
        manifest = Manifest.model_validate(json.loads(text))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None, [first]
    # Reading stops at the first fault; of files that are missing, all are of interest.
    return manifest, _file_faults(directory, manifest) or [first]


def _file_faults(directory: Path, manifest: Manifest) -> list[Finding]:
    faults = []
    for entry in manifest.all_files():
        try:
            size = artifact_path(directory, entry.path).stat().st_size
        except FileNotFoundError:
            faults.append(obstacle(entry.path, "missing", hint=_COPY_AGAIN))
        except (ArtifactError, OSError) as error:
            faults.append(_fault(entry.path, error))
        else:
            if size != entry.size_bytes:
                text = f"{size} bytes; the manifest says {entry.size_bytes}"
                faults.append(obstacle(entry.path, text, hint=_COPY_AGAIN))
    return faults


def _content_findings(directory: Path, manifest: Manifest) -> list[Finding]:
    weights = manifest.weights.file
    files = list(manifest.all_files())
    faults = []
    for entry in files:
        if entry == weights:
            continue
        try:
            check_content(directory, entry, what="the artifact")
        except (ArtifactError, OSError) as error:
            faults.append(_fault(entry.path, error))
    if faults:
        return faults
    total = shown_bytes(sum(entry.size_bytes for entry in files))
    return [ok("files", f"{len(files)} files, {total}, all there; weights are checked on loading")]


def _backend_findings(manifest: Manifest) -> list[Finding]:
    try:
        backend = get_backend(manifest.backend)
        reasons = backend.diagnose(manifest.backend_versions, manifest.requirements)
    except PackageNotFoundError as error:
        reasons = [f"{error.name} is not installed"]
    except ArtifactError as error:
        return [_fault("backend", error)]
    except (OSError, ValueError) as error:
        reasons = [f"this CPU's instruction sets cannot be read: {error}"]
    if reasons:
        return [obstacle("backend", reason, hint=_COMPILE_HERE) for reason in reasons]
    versions = ", ".join(f"{name} {found}" for name, found in manifest.backend_versions.items())
    return [ok("backend", f"compiled with {versions} for a CPU like this one")]


def _target_findings(manifest: Manifest, devices: Sequence[Device]) -> list[Finding]:
    if manifest.backend != "neuron":
        return []
    target = str((manifest.config.get("neuron_config") or {}).get("target"))
    if not devices:
        hint = "run it on an instance with Neuron devices"
        return [obstacle("target", f"compiled for `{target}`, but there is no device", hint=hint)]
    here = {device.target for device in devices if device.target is not None}
    if here and all(runs_graphs_of(name, target) for name in here):
        return [ok("target", f"`{target}`, as the devices are")]
    shown = " and ".join(f"`{name}`" for name in sorted(here)) or "of an unknown kind"
    text = f"compiled for `{target}`, but the devices are {shown}"
    return [obstacle("target", text, hint="set `neuron_config.target` and compile it again")]


def _memory_finding(held: HeldMemory, available: int | None) -> Finding:
    if available is None:
        return note("memory for it", f"{held}; what is available is unknown")
    if held.total_bytes > available:
        return obstacle(
            "memory for it",
            f"{held} do not fit into the {shown_bytes(available)} that are available",
            hint="end other programs, or compile it with a smaller `kv_cache_memory`,"
            " `max_num_seqs` or `max_model_len`",
        )
    return ok("memory for it", f"{held}, beside what the graphs compute with")


def _fault(subject: str, error: ArtifactError | OSError) -> Finding:
    if isinstance(error, ArtifactError):
        return obstacle(subject, error.message, hint=error.hint)
    reason = (error.strerror or str(error)).lower()
    return obstacle(subject, f"cannot be read: {reason}", hint="let this user read it")
