"""How a batch job that did not end goes on: where it stopped, and whether it is the same job.

Where it stopped is said by the records that it left. What it is made of is kept beside its output
until every line has a record: a job that goes on must be the one that began, with the same prompts,
artifact and options, or its output would be half of one job and half of another. Knows no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptLine


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


@dataclass(frozen=True)
class FinishedRecords:
    """The records at the beginning of an output file that belong to the first lines of a job.

    Attributes:
        num_records: how many; the job goes on with the line of this index.
        num_failed: those with an error.
        num_bytes: where they end in the file.
    """

    num_records: int = 0
    num_failed: int = 0
    num_bytes: int = 0


def find_finished_records(
    path: Path, output: BinaryIO, lines: Iterable[PromptLine | BadLine]
) -> FinishedRecords:
    """Return the records of the first lines, up to the first that is missing.

    An interrupted job may have written records of later lines, and a machine that went down half of
    one; they do not count. One record is in memory at a time.

    Args:
        path: of the output, for messages.
        output: the file, from its beginning.
        lines: of the prompts, from the first.

    Raises:
        NeuronLLMError: the file holds something else than records of these lines.
    """
    num_records = num_failed = num_bytes = 0
    remaining = iter(lines)
    while data := output.readline():
        if not data.endswith(b"\n"):
            break
        record = _parse_record(path, data)
        line = next(remaining, None)
        if line is not None and record["index"] > num_records:
            break
        if line is None or (record["index"], record["id"]) != (num_records, line.id):
            raise _not_of_this_job(path, f"line {num_records + 1} is no record of a prompt in turn")
        num_records += 1
        num_failed += record["error"] is not None
        num_bytes += len(data)
    return FinishedRecords(num_records, num_failed, num_bytes)


def _parse_record(path: Path, data: bytes) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _not_of_this_job(path, "a line is no JSON") from error
    is_record = isinstance(record, dict) and {"id", "index", "error"} <= record.keys()
    if not is_record or not isinstance(record["index"], int):
        raise _not_of_this_job(path, "a line is no record")
    return record


def _not_of_this_job(path: Path, reason: str) -> NeuronLLMError:
    return NeuronLLMError(
        f"`{path}` is not what a job of these prompts left: {reason}",
        hint="give another name with `-o`, or replace the file with `--force`",
    )
