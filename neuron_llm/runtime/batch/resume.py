"""What a batch job is made of, kept beside its output until every line has a record.

A job that goes on must be the one that began: the same prompts, artifact and options, or its output
would be half of one job and half of another. Knows no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from neuron_llm.errors import NeuronLLMError


@dataclass(frozen=True)
class JobIdentity:
    """What must be the same.

    Attributes:
        artifact_id: of the manifest.
        prompts_sha256: of the prompts file.
        options: whatever else the records depend on, JSON-able, by name.
    """

    artifact_id: str
    prompts_sha256: str
    options: Mapping[str, Any]

    def differences(self, earlier: JobIdentity) -> list[str]:
        """Return in words what is not as it was when the job began."""
        found = []
        if self.artifact_id != earlier.artifact_id:
            found.append(f"the artifact is `{self.artifact_id}`, and was `{earlier.artifact_id}`")
        if self.prompts_sha256 != earlier.prompts_sha256:
            found.append("the prompts file has changed")
        for name in sorted({*self.options, *earlier.options}):
            here, there = self.options.get(name), earlier.options.get(name)
            if here != there:
                found.append(f"`{name}` is {json.dumps(here)}, and was {json.dumps(there)}")
        return found


def identity_path(output: Path) -> Path:
    """Return where the identity of a job lies: beside its output."""
    return output.with_name(f"{output.name}.job.json")


def write_identity(output: Path, identity: JobIdentity) -> None:
    """Note that a job begins, or goes on.

    Raises:
        NeuronLLMError: there is no room, or the directory cannot be written.
    """
    path = identity_path(output)
    if read_identity(output) == identity:
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(asdict(identity)))
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise NeuronLLMError(
            f"cannot write `{path}`: {(error.strerror or str(error)).lower()}",
            hint="give a file in a directory that can be written with `-o`",
        ) from error


def read_identity(output: Path) -> JobIdentity | None:
    """Return what a job that has not ended is made of; None if nothing says it."""
    try:
        content = json.loads(identity_path(output).read_text())
        return JobIdentity(**{field.name: content[field.name] for field in fields(JobIdentity)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_identity(output: Path, identity: JobIdentity) -> None:
    """Pass a job that may go on.

    Raises:
        NeuronLLMError: it is another job than the one that began, or nothing says which that was.
    """
    hint = "run the command that began it, give another name with `-o`, or begin with `--force`"
    earlier = read_identity(output)
    if earlier is None:
        raise NeuronLLMError(
            f"nothing says which job left `{output}`: `{identity_path(output)}` is missing",
            hint=hint,
        )
    differences = identity.differences(earlier)
    if differences:
        raise NeuronLLMError(f"`{output}` is of another job: {'; '.join(differences)}", hint=hint)


def forget_identity(output: Path) -> None:
    """Note that every line of a job has a record."""
    identity_path(output).unlink(missing_ok=True)
