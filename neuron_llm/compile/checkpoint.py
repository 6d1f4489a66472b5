"""From the configuration's `model` to a Hugging Face directory of safetensors on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from neuron_llm.backends.graph_cache import GraphCache
from neuron_llm.compile.manifest import file_sha256
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


def read_architecture(model_path: Path) -> dict[str, Any]:
    """Return a model's configuration without what differs between its fine-tunes.

    Args:
        model_path: a Hugging Face directory or a GGUF file.
    """
    from transformers import AutoConfig

    source: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    directory = model_path
    if model_path.is_file():
        directory, source["gguf_file"] = model_path.parent, model_path.name
    config: dict[str, Any] = AutoConfig.from_pretrained(directory, **source).to_dict()
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

    Conversions are kept in the compile cache by the file's content.
    """
    content = file_sha256(gguf)
    checkpoint = cache_dir / "checkpoints" / content
    if not checkpoint.is_dir():
        cache = GraphCache(cache_dir)
        with cache.lock(content):
            if not checkpoint.is_dir():
                checkpoint.parent.mkdir(exist_ok=True)
                # In the scratch directory, what a killed conversion leaves is swept.
                with cache.scratch() as scratch:
                    convert_gguf(gguf, scratch / "checkpoint")
                    os.rename(scratch / "checkpoint", checkpoint)
    return checkpoint


def convert_gguf(gguf: Path, checkpoint: Path) -> None:
    """Write a GGUF file as a Hugging Face directory: float32 safetensors, config and tokenizer.

    The directory appears in one step, when it is whole.

    Raises:
        ModelNotFoundError: the packages for reading GGUF are missing, or the file is none.
    """
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as scratch:
        _save_as_checkpoint(gguf, Path(scratch) / "checkpoint")
        os.rename(Path(scratch) / "checkpoint", checkpoint)


def _save_as_checkpoint(gguf: Path, directory: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    try:
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    except ImportError as error:
        raise ModelNotFoundError(
            f"`{gguf}` cannot be read without the packages for GGUF",
            hint="install them: `pip install 'neuron-llm[gguf]'`",
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise ModelNotFoundError(f"`{gguf}` cannot be read as GGUF: {error}") from error
    # A model that came from GGUF refuses to be saved, so its weights move into one that did not.
    settings = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict({name: t.detach().clone() for name, t in loaded.state_dict().items()})
    model.tie_weights()
    model.generation_config = loaded.generation_config
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
