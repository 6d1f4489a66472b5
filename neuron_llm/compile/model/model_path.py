"""Where the model of a configuration lies, if it lies on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from neuron_llm.errors import ModelNotFoundError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HINT = "give a Hugging Face directory, a `.gguf` file, or a hub id with `revision:`"


def find_model(model: str, revision: str | None, config_dir: Path) -> Path | None:
    """Return the directory or `.gguf` file that `model` names, or None for a hub id.

    A relative path is looked up from the current directory first, then from the directory of the
    configuration file, so that a file works from where it is usually run and from anywhere else.

    Raises:
        ModelNotFoundError: nothing is there, and `model` is no hub id with a revision; or what is
            there is no model.
    """
    for path in (Path(model), config_dir / model):
        # Unlike `Path.exists`, false for a name that no file can have.
        if os.path.exists(path):
            _check_is_model(path)
            if revision is not None:
                raise ModelNotFoundError(
                    f'"{model}" is a local path, which has no `revision` ("{revision}")',
                    hint="remove `revision`",
                )
            return path
    if revision is not None and _HUB_ID.fullmatch(model):
        return None
    kind = "file" if model.endswith(".gguf") else "directory"
    raise ModelNotFoundError(f'"{model}": no such {kind}', hint=_HINT)


def _check_is_model(path: Path) -> None:
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelNotFoundError(f'"{path}" is a file, but no `.gguf` file', hint=_HINT)
        return
    if (path / "config.json").is_file():
        return
    gguf_files = sorted(path.glob("*.gguf"))
    hint = f"write `model: {gguf_files[0]}`" if gguf_files else _HINT
    raise ModelNotFoundError(f'"{path}" contains no `config.json`', hint=hint)
