"""Loading the tokenizer of a directory: what a compile checks is what a run does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def load_tokenizer_files(directory: Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer with a Rust backend from its files: no hub, no code of the model's.

    Raises:
        ModelNotFoundError: there is no tokenizer in `directory`, or its files are damaged.
        UnsupportedModelError: the tokenizer runs only as Python code or as code of the model's.
    """
    from transformers import AutoTokenizer

    if not directory.is_dir():
        raise ModelNotFoundError(f"no tokenizer directory at `{directory}`")
    try:
        tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
    # The Rust tokenizers raise plain exceptions, so nothing narrower holds a damaged file.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelNotFoundError(
            f"the tokenizer in `{directory}` does not load: {reason}",
            hint="the directory needs `tokenizer.json` and `tokenizer_config.json` of the model",
        ) from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UnsupportedModelError(
            f"the tokenizer `{type(tokenizer).__name__}` has no `tokenizers` backend",
            hint="save it once as `tokenizer.json` with `convert_slow_tokenizer`",
        )
    return tokenizer
