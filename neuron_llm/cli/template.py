"""The file of a chat template that replaces the model's."""

from __future__ import annotations

from pathlib import Path

from neuron_llm.errors import NeuronLLMError


def read_template(path: Path) -> str:
    """Return a Jinja chat template.

    Raises:
        NeuronLLMError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise NeuronLLMError(
            f"cannot read the chat template `{path}`: {(reason or str(error)).lower()}",
            hint="give a Jinja file with `--template FILE`",
        ) from error
