"""One line of the diagnosis: what was found, whether it is well, and the way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How well it is."""

    OK = "ok"
    NOTE = "note"
    """Works, or is not needed; good to know."""
    PROBLEM = "problem"
    """Does not work as it is."""


@dataclass(frozen=True)
class Finding:
    """What was found about one subject.

    Attributes:
        subject: what it is about, a name that machines can look for.
        status: how well it is.
        text: what was found; lower case, no full stop, literals in backticks.
        hint: the way out, in words.
        command: the way out as one shell command.
        is_decisive: because of it, what was asked for cannot run here.
    """

    subject: str
    status: Status
    text: str
    hint: str | None = None
    command: str | None = None
    is_decisive: bool = False


def ok(subject: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(subject, Status.OK, text)


def note(
    subject: str, text: str, *, hint: str | None = None, command: str | None = None
) -> Finding:
    """Return a finding that is good to know."""
    return Finding(subject, Status.NOTE, text, hint, command)


def problem(
    subject: str, text: str, *, hint: str | None = None, command: str | None = None
) -> Finding:
    """Return a finding that something does not work, though what was asked for may."""
    return Finding(subject, Status.PROBLEM, text, hint, command)


def obstacle(
    subject: str, text: str, *, hint: str | None = None, command: str | None = None
) -> Finding:
    """Return a problem because of which what was asked for cannot run here."""
    return Finding(subject, Status.PROBLEM, text, hint, command, is_decisive=True)
