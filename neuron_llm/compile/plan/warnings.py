"""What a plan allows although it may not be meant."""

from __future__ import annotations

from collections.abc import Iterator

from neuron_llm.compile.config.config import AUTO, Config
from neuron_llm.compile.config.kv_cache import NUM_NULL_BLOCKS, KVCachePlan
from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.compile.plan.memory import MemoryPlan
from neuron_llm.compile.plan.neuron_code import MAX_INSTRUCTIONS
from neuron_llm.scheduler.policy.coverage import ReachableShapes, UnreachableBucket


def plan_warnings(
    config: Config,
    shapes: ReachableShapes,
    kv_cache: KVCachePlan,
    unreachable: tuple[UnreachableBucket, ...],
) -> tuple[str, ...]:
    """Return one sentence for everything that works, but perhaps not as meant."""
    return (
        *_prefix_caching_warnings(config, shapes),
        *_kv_cache_warnings(config, kv_cache),
        *(f"{dropped.bucket.name} is not compiled: {dropped.reason}" for dropped in unreachable),
    )


def rope_warnings(model: ModelSpec, max_model_len: int) -> tuple[str, ...]:
    """Return a sentence if requests of some length are answered otherwise than elsewhere."""
    length = model.short_rope_len
    if length is None or max_model_len <= length:
        return ()
    return (
        f"every request has the long rotary factors, as `max_model_len` ({max_model_len}) has;"
        f" those of at most {length} tokens may be answered better with the short ones:"
        f" `max_model_len: {length}`",
    )


def neuron_warnings(config: Config, memory: MemoryPlan) -> Iterator[str]:
    """Yield what `binding: auto` has come to, and which graphs may be too long to compile."""
    if config.neuron_config.binding == AUTO and memory.num_copies > 1:
        yield (
            "`binding: auto` is `trace`, since neuronx-distributed is not installed here: each of"
            f" {memory.num_copies} graphs has its own weights and KV cache on the device;"
            " `binding: model_builder` has them once"
        )
    for graph in memory.graphs:
        if graph.num_instructions is not None and graph.num_instructions > MAX_INSTRUCTIONS:
            yield (
                f"{graph.name} may be too long for neuronx-cc: about"
                f" {graph.num_instructions / 10**6:.1f} million instructions, by an estimate, and"
                f" graphs of more than {MAX_INSTRUCTIONS // 10**6} million were refused; give a"
                " smaller bucket or a smaller `max_model_len`"
            )


def _prefix_caching_warnings(config: Config, shapes: ReachableShapes) -> Iterator[str]:
    """Only whole blocks are shared, and a prompt's last token is always computed."""
    if not config.enable_prefix_caching:
        return
    longest_prompt = shapes.max_prompt_tokens
    if longest_prompt <= config.block_size:
        yield (
            f"prefix caching cannot hit: no prompt (at most {longest_prompt} tokens) spans a full"
            f" block of {config.block_size} tokens and one more; lower `block_size`"
        )
    elif config.block_size >= config.max_num_batched_tokens:
        yield (
            f"prefix caching hits only prompts of more than {config.block_size} tokens: a block is"
            f" as large as a prefill step ({config.max_num_batched_tokens} tokens) or larger;"
            " lower `block_size`"
        )


def _kv_cache_warnings(config: Config, kv_cache: KVCachePlan) -> Iterator[str]:
    if kv_cache.num_blocks < kv_cache.wanted_num_blocks:
        request_blocks = kv_cache.needed_num_blocks - NUM_NULL_BLOCKS
        yield (
            f"{kv_cache.num_blocks} KV blocks (`{kv_cache.budget_source}`) hold"
            f" {kv_cache.num_usable_blocks // request_blocks} of `max_num_seqs`"
            f" ({config.max_num_seqs}) requests of full length;"
            f" all of them need {kv_cache.wanted_num_blocks}"
        )
