"""From the configuration's `model` to a Hugging Face directory of safetensors on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neuron_llm.artifact.manifest import file_sha256
from neuron_llm.backends.build.cache import GraphCache, content_key
from neuron_llm.backends.build.sources import sources_digest
from neuron_llm.compile.model.gguf_header import GgufHeader, read_gguf_header
from neuron_llm.compile.model.gguf_spec import FLOAT_DTYPES, gguf_config, main_type
from neuron_llm.compile.model.gguf_weights import plan_conversion, write_safetensors
from neuron_llm.compile.model.transformers_model import build_config, load_config, meta_model
from neuron_llm.errors import ModelNotFoundError

# What belongs to a tokenizer, copied as it is.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
# Not part of an architecture: who it is, where it came from, which ids are special.
_IDENTITY_KEYS = {
    "_name_or_path",
    "_model_name_or_path",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "quantization_config",
    "use_cache",
}
_CONVERTER_PACKAGES = ("gguf", "transformers")


def read_architecture(model_path: Path) -> dict[str, Any]:
    """Return a model's configuration without what differs between its fine-tunes.

    Args:
        model_path: a Hugging Face directory or a GGUF file.

    Raises:
        ModelNotFoundError: the configuration describes no model that can be built.
    """
    if model_path.is_file():
        loaded = _gguf_model_config(read_gguf_header(model_path))
    else:
        loaded = load_config(model_path)
    config: dict[str, Any] = loaded.to_dict()
    return {
        key: value
        for key, value in config.items()
        if key not in _IDENTITY_KEYS and not key.endswith(("token_id", "token_ids"))
    }


def copy_model_files(checkpoint: Path, artifact: Path, tokenizer_dir: str) -> list[Path]:
    """Copy tokenizer, `config.json` and `generation_config.json`; return the copies.

    Raises:
        ModelNotFoundError: the checkpoint has no tokenizer.
    """
    (artifact / tokenizer_dir).mkdir()
    copies = []
    for name in _TOKENIZER_FILES:
        if (checkpoint / name).is_file():
            copies.append(artifact / tokenizer_dir / name)
            shutil.copyfile(checkpoint / name, copies[-1])
    if not copies:
        raise ModelNotFoundError(
            f"`{checkpoint}` has no tokenizer",
            hint="download `tokenizer.json` and `tokenizer_config.json` of the model too",
        )
    for name in ("config.json", "generation_config.json"):
        if (checkpoint / name).is_file():
            copies.append(artifact / name)
            shutil.copyfile(checkpoint / name, copies[-1])
    return copies


def checkpoint_of_gguf(gguf: Path, cache_dir: Path) -> Path:
    """Return the Hugging Face directory of a GGUF file, converting it once.

    Conversions are kept in the compile cache by the file's content, and by what converts it.
    """
    key = content_key({"content": file_sha256(gguf), "converter": _converter()})
    checkpoint = cache_dir / "checkpoints" / key
    cache = GraphCache(cache_dir)
    if not cache.use(checkpoint):
        with cache.lock(key):
            if not cache.use(checkpoint):
                checkpoint.parent.mkdir(exist_ok=True)
                # In the scratch directory, what a killed conversion leaves is swept.
                with cache.scratch() as scratch:
                    convert_gguf(gguf, scratch / "checkpoint")
                    os.rename(scratch / "checkpoint", checkpoint)
    return checkpoint


def convert_gguf(gguf: Path, checkpoint: Path) -> None:
    """Write a GGUF file as a Hugging Face directory: safetensors, config and tokenizer.

    Quantised weights become float32, others keep their dtype, so that no number changes. The
    directory appears in one step, when it is whole.

    Raises:
        ModelNotFoundError: the file is no GGUF file, or lacks a tensor or a tokenizer.
        UnsupportedModelError: the file holds what cannot be converted, or the packages for reading
            GGUF are missing.
    """
    header = read_gguf_header(gguf)
    config = _gguf_model_config(header)
    plan = plan_conversion(header, meta_model(config, gguf))
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as scratch:
        directory = Path(scratch) / "checkpoint"
        config.save_pretrained(directory)
        _save_tokenizer(gguf, directory)
        write_safetensors(header, plan, directory / "model.safetensors")
        os.rename(directory, checkpoint)


def _gguf_model_config(header: GgufHeader) -> Any:
    """The transformers configuration of a file, with the dtype that its matrices will have."""
    settings = gguf_config(header)
    dtype = FLOAT_DTYPES.get(main_type(header), "float32")
    return build_config({**settings, "dtype": dtype}, header.path)


def _save_tokenizer(gguf: Path, directory: Path) -> None:
    # The automatic choice of a class reads the vocabulary twice more, and Gemma's adds a token.
    from transformers import PreTrainedTokenizerFast

    # Alone in a directory, lest the files of another tokenizer beside it are read.
    with tempfile.TemporaryDirectory() as alone:
        (Path(alone) / "model.gguf").symlink_to(gguf.resolve())
        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(
                alone, gguf_file="model.gguf", local_files_only=True
            )
        # The Rust tokenizers raise plain exceptions, so nothing narrower holds a strange file.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelNotFoundError(
                f"the tokenizer of `{gguf}` does not load: {reason}",
                hint="give the model as a Hugging Face directory with `tokenizer.json`",
            ) from error
    tokenizer.save_pretrained(directory)


def _converter() -> dict[str, str]:
    """What a conversion depends on besides the file: our code and the libraries."""
    sources = sources_digest(__name__, room="neuron_llm.compile.model")
    return {"sources": sources, **{name: version(name) for name in _CONVERTER_PACKAGES}}
