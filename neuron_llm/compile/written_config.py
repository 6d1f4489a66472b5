"""A copy of a configuration with other bucket lists, and its comments kept. Knows no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from neuron_llm.backends.neuron.packages import installed_binding
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.errors import NeuronLLMError


@dataclass(frozen=True)
class ChosenLists:
    """What is changed in a configuration; None leaves a key as it is.

    Attributes:
        max_num_batched_tokens: most tokens of one prefill step.
        num_batched_tokens_buckets: ascending.
        num_seqs_buckets: ascending.
        decode_context_length_buckets: ascending; empty for none.
    """

    max_num_batched_tokens: int | None = None
    num_batched_tokens_buckets: Sequence[int] | None = None
    num_seqs_buckets: Sequence[int] | None = None
    decode_context_length_buckets: Sequence[int] | None = None


def write_config(source: Path, destination: Path, lists: ChosenLists, *, force: bool) -> None:
    """Write a copy of a configuration with the chosen lists, once it loads and can be planned.

    A relative `model` leads to the same place from the copy's folder.

    Args:
        source: a configuration that loads.
        destination: the copy.
        lists: what is changed.
        force: replace a file that is there.

    Raises:
        NeuronLLMError: the destination exists, or cannot be written.
        ConfigError: the copy would be no valid configuration.
    """
    check_destination(destination, force=force)
    text = changed_config(source, destination.parent, lists)
    # Beside its place, since a relative `model` is looked up from the file's folder.
    draft = destination.with_name(f"{destination.stem}-{os.getpid()}{destination.suffix}")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_text(text, encoding="utf-8")
            loaded = load_config(draft)
            if loaded.model_spec is not None:
                plan_compile(loaded, loaded.model_spec, auto_binding=installed_binding())
            draft.replace(destination)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise NeuronLLMError(
            f"cannot write `{destination}`: {(error.strerror or str(error)).lower()}",
            hint="name a file in a folder that can be written to",
        ) from error


def check_destination(destination: Path, *, force: bool) -> None:
    """Refuse to replace a file, unless that is wanted.

    Raises:
        NeuronLLMError: it exists.
    """
    if destination.exists() and not force:
        raise NeuronLLMError(
            f"`{destination}` exists", hint="name another file, or replace it with `--force`"
        )


def changed_config(source: Path, directory: Path, lists: ChosenLists) -> str:
    """Return the text of a configuration with the chosen lists, everything else as it was.

    Args:
        source: a configuration that loads.
        directory: where the copy will lie.
        lists: what is changed.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    text = source.read_text(encoding="utf-8-sig")
    yaml = YAML()
    yaml.preserve_quotes = True
    # A longer line would be folded.
    yaml.width = len(text) + 1000
    mapping, dash = _indents(text)
    yaml.indent(mapping=mapping, sequence=dash + 2, offset=dash)
    document = yaml.load(text)
    document["model"] = _seen_from(directory, document["model"], source.parent)
    if lists.max_num_batched_tokens is not None:
        _put(document, "max_num_batched_tokens", lists.max_num_batched_tokens, place=1)
    if not document.get("neuron_config"):
        document["neuron_config"] = CommentedMap()
    _put_lists(document["neuron_config"], lists)
    stream = StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _indents(text: str) -> tuple[int, int]:
    """Return how far the file's keys stand within a mapping, and dashes within a key's list."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    columns = [len(line) - len(line.lstrip()) for line in lines]
    is_item = [line.lstrip().startswith("-") for line in lines]
    keys = (c for c, item in zip(columns, is_item, strict=True) if c and not item)
    dashes = (
        columns[i] - columns[i - 1] for i in range(1, len(lines)) if is_item[i] > is_item[i - 1]
    )
    return next(keys, 2), max(next(dashes, 0), 0)


def _put_lists(neuron_config: Any, lists: ChosenLists) -> None:
    contexts = lists.decode_context_length_buckets
    key = "decode_context_length_buckets"
    if contexts:
        _put(neuron_config, key, _sequence(contexts, neuron_config.get(key)))
    elif contexts is not None and key in neuron_config:
        # Removed with its key, a comment below it would be gone too.
        neuron_config[key] = None
    for key in ("num_seqs_buckets", "num_batched_tokens_buckets"):
        values = getattr(lists, key)
        if values is not None:
            _put(neuron_config, key, _sequence(values, neuron_config.get(key)))


def _put(mapping: Any, key: str, value: object, *, place: int = 0) -> None:
    """Set a key where it stands, or insert it: behind the last one, a comment may follow."""
    if key in mapping:
        mapping[key] = value
    else:
        mapping.insert(min(place, len(mapping)), key, value)


def _sequence(values: Sequence[int], old: Any) -> Any:
    """Return a list in the style of the old one, with the comments of the items that are left."""
    from ruamel.yaml.comments import CommentedSeq

    new = CommentedSeq(values)
    if not isinstance(old, CommentedSeq) or not old or old.fa.flow_style():
        new.fa.set_flow_style()
        return new
    for index, comment in old.ca.items.items():
        # What follows the list belongs to its last item.
        is_last = index == len(old) - 1
        if is_last or old[index] in values:
            new.ca.items[len(new) - 1 if is_last else new.index(old[index])] = comment
    return new


def _seen_from(directory: Path, model: str, source_dir: Path) -> str:
    """Return a model's relative path as it is from another folder, everything else unchanged."""
    is_found_anywhere = os.path.exists(model) or os.path.isabs(model)
    if is_found_anywhere or not os.path.exists(source_dir / model):
        return model
    if source_dir.resolve() == directory.resolve():
        return model
    return os.path.relpath((source_dir / model).resolve(), directory.resolve())
