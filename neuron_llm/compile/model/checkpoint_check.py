"""What a checkpoint must have before graphs are built for it: weights that fit, and a tokenizer.

Reads headers and small files only; the numbers themselves are looked at when they are written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from neuron_llm.artifact.tokenizer_files import load_tokenizer_files
from neuron_llm.compile.model.safetensors_header import read_shapes
from neuron_llm.compile.model.transformers_model import load_config, meta_model
from neuron_llm.errors import ModelNotFoundError

_DOWNLOAD_AGAIN = "download the model again, with all its files"
# By name, since nobody looks inside: `training_args.bin` holds no weights.
_PICKLES = ("pytorch_model*.bin", "model*.bin", "consolidated*.pth", "*.pt")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


def check_checkpoint(checkpoint: Path) -> None:
    """Pass a Hugging Face directory that graphs can be compiled for.

    Raises:
        ModelNotFoundError: no safetensors, weights of other shapes than `config.json` says, a
            `config.json` that describes no model, or no tokenizer that loads.
        UnsupportedModelError: the tokenizer runs only as Python code.
    """
    shapes = read_shapes(checkpoint)
    if not shapes:
        raise _without_safetensors(checkpoint)
    _check_shapes(checkpoint, shapes)
    load_tokenizer_files(checkpoint)


def _check_shapes(checkpoint: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    model = meta_model(load_config(checkpoint), checkpoint)
    # Tied weights are one parameter of several names, and one of the names is enough.
    names: defaultdict[int, list[str]] = defaultdict(list)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        names[id(parameter)].append(name)
        stored, needed = shapes.get(name), tuple(parameter.shape)
        if stored is not None and stored != needed:
            raise _unfit(checkpoint, f"`{name}` is {list(stored)}, not {list(needed)}")
    _check_layers(checkpoint, model, shapes.keys() - parameters.keys())
    missing = [group[0] for group in names.values() if not shapes.keys() & set(group)]
    # Some checkpoints name their weights otherwise, and loading translates the names.
    if missing and shapes.keys() <= model.state_dict().keys():
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise _unfit(checkpoint, f"`{missing[0]}`{more} missing")


def _check_layers(checkpoint: Path, model: Any, unknown: Iterable[str]) -> None:
    """Loading would leave the layers out that the configuration does not count."""
    num_layers = model.config.num_hidden_layers
    ignored = model._keys_to_ignore_on_load_unexpected or ()
    for name in sorted(unknown):
        layer = _LAYER.search(name)
        is_extra = layer is not None and int(layer[1]) >= num_layers
        if is_extra and not any(re.search(pattern, name) for pattern in ignored):
            raise _unfit(checkpoint, f"`{name}` is of a layer over `num_hidden_layers`")


def _without_safetensors(checkpoint: Path) -> ModelNotFoundError:
    hint = "give a directory with `model.safetensors` or its shards as `model`"
    found = "no weights"
    pickled = sorted(path.name for pattern in _PICKLES for path in checkpoint.glob(pattern))
    others = sorted(path.name for path in checkpoint.glob("*.safetensors"))
    if others:
        found = f"`{others[0]}`, and neither `model.safetensors` nor an index of shards"
        hint = "download the model again, with `model.safetensors.index.json`"
    elif pickled:
        # Unpickling runs whatever code is in the file, so it is left to who trusts the file.
        found = f"only `{pickled[0]}`, which is not read"
        hint = (
            "if you trust the file, write it once as safetensors in Python: "
            f"`transformers.AutoModelForCausalLM.from_pretrained({str(checkpoint)!r})"
            '.save_pretrained("safe")`, and copy the tokenizer to `safe`'
        )
    return ModelNotFoundError(f"`{checkpoint}` has {found}: safetensors are needed", hint=hint)


def _unfit(checkpoint: Path, what: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"the weights of `{checkpoint}` do not fit its config.json: {what}", hint=_DOWNLOAD_AGAIN
    )
