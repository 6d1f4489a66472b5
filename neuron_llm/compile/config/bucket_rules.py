"""The rules of the four bucket lists."""

from __future__ import annotations

from collections.abc import Iterator

from neuron_llm.compile.config.config import Config
from neuron_llm.compile.config.fault import Fault, shown
from neuron_llm.compile.model.model_spec import ModelSpec

CONTEXT_BUCKET_MULTIPLE = 128


def resolve_max_model_len(config: Config, model: ModelSpec | None) -> int | None:
    """Return the limit on prompt and output together, or None when only the model knows it."""
    if config.max_model_len is not None or model is None:
        return config.max_model_len
    return model.max_position_embeddings


def check_ascending(config: Config, key: str) -> Iterator[Fault]:
    """Buckets ascend strictly: the order is what a count is looked up by."""
    buckets: tuple[int, ...] | None = getattr(config.neuron_config, key)
    if buckets is not None and list(buckets) != sorted(set(buckets)):
        yield Fault(
            f"neuron_config.{key}",
            f"{shown(buckets)} must ascend strictly; write {shown(sorted(set(buckets)))}",
        )


def check_tokens_maximum(config: Config, model: ModelSpec | None) -> Iterator[Fault]:
    """The last prefill bucket is the largest chunk: none lacks a graph, no graph is too large."""
    max_model_len = resolve_max_model_len(config, model)
    if max_model_len is None:
        return
    yield from _ends_in(
        config,
        "num_batched_tokens_buckets",
        min(config.max_num_batched_tokens, max_model_len),
        f"the smaller of `max_num_batched_tokens` ({config.max_num_batched_tokens})"
        f" and `max_model_len` ({max_model_len})",
    )


def check_seqs_maximum(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    """The last decode bucket holds all requests that run together."""
    yield from _ends_in(config, "num_seqs_buckets", config.max_num_seqs, "`max_num_seqs`")


def check_contexts(config: Config, model: ModelSpec | None) -> Iterator[Fault]:
    """Context buckets are whole tiles, and shorter than the graph that is compiled anyway."""
    max_model_len = resolve_max_model_len(config, model)
    buckets = config.neuron_config.decode_context_length_buckets or ()
    for index, bucket in enumerate(buckets):
        key = f"neuron_config.decode_context_length_buckets[{index}]"
        if bucket % CONTEXT_BUCKET_MULTIPLE:
            rounded = (bucket // CONTEXT_BUCKET_MULTIPLE + 1) * CONTEXT_BUCKET_MULTIPLE
            yield Fault(key, f"{bucket} must be a multiple of 128; write {rounded} or remove it")
        if max_model_len is not None and bucket >= max_model_len:
            yield Fault(
                key,
                f"{bucket} must be less than `max_model_len` ({max_model_len}), whose graph is"
                " compiled anyway; remove it",
            )


def check_kv_segments(config: Config, model: ModelSpec | None) -> Iterator[Fault]:
    """Segments consist of whole blocks and lie within the longest context."""
    max_model_len = resolve_max_model_len(config, model)
    for index, segment in enumerate(config.neuron_config.kv_segment_size_buckets or ()):
        key = f"neuron_config.kv_segment_size_buckets[{index}]"
        if segment % config.block_size:
            yield Fault(
                key,
                f"{segment} must be a multiple of `block_size` ({config.block_size}):"
                " a segment consists of whole blocks; change one of the two",
            )
        if max_model_len is not None and segment > max_model_len:
            yield Fault(
                key, f"{segment} must be at most `max_model_len` ({max_model_len}); remove it"
            )


def _ends_in(config: Config, key: str, maximum: int, meaning: str) -> Iterator[Fault]:
    buckets: tuple[int, ...] | None = getattr(config.neuron_config, key)
    # The largest, not the last: an unsorted list is another fault, with another way out.
    if buckets is None or max(buckets) == maximum:
        return
    kept = sorted({bucket for bucket in buckets if bucket < maximum})
    yield Fault(
        f"neuron_config.{key}",
        f"{shown(buckets)} must end in {maximum}, {meaning}; write {shown([*kept, maximum])}",
    )
