"""What can go wrong in a way that the user can mend.

Every expected failure is a `NeuronLLMError`: a message that says what happened, with the value and
the limit, and a hint that names the next command or key to change. `cli/main.py` is the one place
that turns them into text and an exit code.
"""

from __future__ import annotations


class NeuronLLMError(Exception):
    """Base of every expected failure.

    Args:
        message: what happened, with the value and the limit; lower case, no full stop, literals in
            backticks.
        hint: the next command to run or key to change.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(NeuronLLMError):
    """The configuration breaks its rules; `faults` lists every violation, one line each.

    Args:
        message: the summary line.
        faults: one complete sentence per violation: file and line, key, value, rule, way out.
        hint: see `NeuronLLMError`.
    """

    def __init__(
        self, message: str, *, faults: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.faults = faults


class ModelNotFoundError(NeuronLLMError):
    """The model directory, file or hub id does not lead to a model."""


class UnsupportedModelError(NeuronLLMError):
    """The model exists, but its architecture cannot be compiled into static bucket graphs."""


class ArtifactError(NeuronLLMError):
    """An artifact is missing, damaged, or made for another machine or other versions."""


class CompileError(NeuronLLMError):
    """A graph did not compile; the message names the bucket and the log."""


class NoBucketError(NeuronLLMError):
    """No compiled bucket holds the count. Never answered with the largest bucket instead."""


class OutOfBlocksError(NeuronLLMError):
    """The block pool cannot hand out as many blocks as were asked for."""


class RequestError(NeuronLLMError):
    """One request is refused; the others are not touched.

    Args:
        message: see `NeuronLLMError`.
        code: a stable word for machines, such as `invalid_json` or `prompt_too_long`.
        hint: see `NeuronLLMError`.
    """

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class NoProgressError(NeuronLLMError):
    """Unfinished requests, nothing in flight, and a step that schedules nothing."""
