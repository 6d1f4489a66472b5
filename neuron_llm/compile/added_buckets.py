"""Buckets that are added to those of a configuration when it is compiled.

The artifact's configuration has them as if the file had named them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from neuron_llm.artifact.manifest import FileEntry, Manifest
from neuron_llm.backends.build.inventory import JOINED_PREFIX
from neuron_llm.compile.config.bucket_rules import CONTEXT_BUCKET_MULTIPLE
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.config.rules import broken_rules
from neuron_llm.compile.plan.plan import CompilePlan
from neuron_llm.errors import ConfigError
from neuron_llm.scheduler.buckets import get_default_num_seqs_buckets

BUCKET_KEYS = (
    "num_batched_tokens_buckets",
    "num_seqs_buckets",
    "decode_context_length_buckets",
)
# More digits than any count has that a graph can be compiled for.
_PREFILL = re.compile(r"prefill:([1-9][0-9]{0,9})")
_DECODE = re.compile(r"decode:([1-9][0-9]{0,9})(?:x([1-9][0-9]{0,9}))?")


def with_added_buckets(
    loaded: LoadedConfig, plan: CompilePlan, added: Iterable[str]
) -> LoadedConfig:
    """Return the configuration with more buckets; its lists are then those that are planned.

    `prefill:2048` is one more prefill graph. `decode:4` is one more batch size, for each context
    length that the configuration has, `decode:4x512` a batch size and a context length; what of
    the two is there already stays as it is.

    Args:
        loaded: a configuration.
        plan: what it means by itself.
        added: buckets as a command line names them.

    Raises:
        ConfigError: one is misspelt, or of a size that no step can need or no graph can have.
    """
    neuron = loaded.config.neuron_config
    tokens = plan.buckets.num_batched_tokens_buckets
    largest_chunk = tokens[-1]
    # All that are asked for: the plan lacks those that no step can need.
    seqs = list(neuron.num_seqs_buckets or get_default_num_seqs_buckets(plan.max_num_seqs))
    contexts = list(neuron.decode_context_length_buckets or ())
    for text in added:
        if match := _PREFILL.fullmatch(text):
            tokens.append(_at_most(text, int(match[1]), largest_chunk, "the largest prefill chunk"))
        elif match := _DECODE.fullmatch(text):
            seqs.append(_at_most(text, int(match[1]), plan.max_num_seqs, "`max_num_seqs`"))
            if match[2] and int(match[2]) != plan.max_model_len:
                contexts.append(_context(text, int(match[2]), plan.max_model_len))
        else:
            raise ConfigError(
                f"`{text}` is no bucket",
                hint="write `prefill:TOKENS`, `decode:ROWS` or `decode:ROWSxCONTEXT`",
            )
    lists = [tuple(sorted(set(sizes))) or None for sizes in (tokens, seqs, contexts)]
    changed = neuron.model_copy(update=dict(zip(BUCKET_KEYS, lists, strict=True)))
    config = loaded.config.model_copy(update={"neuron_config": changed})
    assert not broken_rules(config, loaded.model_spec), "every size was looked at"
    return replace(loaded, config=config)


def without_buckets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, as a manifest holds it, without its lists of buckets."""
    neuron = {k: v for k, v in config["neuron_config"].items() if k not in BUCKET_KEYS}
    return {**config, "neuron_config": neuron}


def extends(manifest: Manifest, other: Manifest) -> bool:
    """Whether an artifact is another one with more graphs, and the same in everything else."""
    names = {graph.name for graph in other.graphs}
    graphs = tuple(graph for graph in manifest.graphs if graph.name in names)
    config = without_buckets(manifest.config)
    if not graphs:
        return False
    libraries = _libraries(manifest)
    common = manifest.model_copy(
        update={"graphs": graphs, "config": config, "shared_files": libraries}
    )
    bare = other.model_copy(
        update={"config": without_buckets(other.config), "shared_files": _libraries(other)}
    )
    return common.identified().artifact_id == bare.identified().artifact_id


def _libraries(manifest: Manifest) -> tuple[FileEntry, ...]:
    """Return the shared files that are the same whatever graphs there are."""
    return tuple(
        file
        for file in manifest.shared_files
        if not PurePosixPath(file.path).name.startswith(JOINED_PREFIX)
    )


def _at_most(text: str, size: int, limit: int, what: str) -> int:
    if size > limit:
        raise ConfigError(
            f"`{text}` is larger than {what} ({limit}): no step would need it",
            hint="raise the limit in the configuration first, or add a smaller bucket",
        )
    return size


def _context(text: str, context: int, max_model_len: int) -> int:
    if context > max_model_len or context % CONTEXT_BUCKET_MULTIPLE:
        raise ConfigError(
            f"the context of `{text}` must be a multiple of {CONTEXT_BUCKET_MULTIPLE} below"
            f" `max_model_len` ({max_model_len}), or that itself",
            hint="write another context length",
        )
    return context
