"""Which buckets become graphs: those that were asked for, or the defaults, that a step can need."""

from __future__ import annotations

from neuron_llm.compile.config.config import Config
from neuron_llm.scheduler.buckets import (
    BucketSet,
    DecodeBucket,
    PrefillBucket,
    get_default_num_batched_tokens_buckets,
    get_default_num_seqs_buckets,
)
from neuron_llm.scheduler.policy.coverage import (
    ReachableShapes,
    UnreachableBucket,
    check_coverage,
    min_blocks_per_request,
    reachable_shapes,
    split_reachable,
)


def plan_shapes(config: Config, max_model_len: int, num_usable_blocks: int) -> ReachableShapes:
    """Return the greatest counts that can occur under this config."""
    return reachable_shapes(
        max_model_len=max_model_len,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
        num_usable_blocks=num_usable_blocks,
        blocks_per_request=min_blocks_per_request(
            config.kv_admission, max_model_len, config.block_size
        ),
    )


def plan_buckets(
    config: Config, max_model_len: int, shapes: ReachableShapes
) -> tuple[BucketSet, tuple[UnreachableBucket, ...]]:
    """Return the buckets to compile and, each with its reason, those that are left out.

    Every decode batch size is compiled for each context bucket and for `max_model_len`. The prefill
    token budget has no say in the decode buckets, and since the prefill buckets end in it, none of
    them can be left out.
    """
    neuron = config.neuron_config
    tokens = neuron.num_batched_tokens_buckets or get_default_num_batched_tokens_buckets(
        shapes.max_chunk_tokens
    )
    all_seqs = neuron.num_seqs_buckets or get_default_num_seqs_buckets(config.max_num_seqs)
    seqs, unused_seqs = split_reachable(all_seqs, shapes.max_decode_seqs)
    contexts = (*(neuron.decode_context_length_buckets or ()), max_model_len)
    buckets = BucketSet(
        prefill=tuple(PrefillBucket(num_tokens) for num_tokens in tokens),
        decode=tuple(DecodeBucket(batch, context) for batch in seqs for context in contexts),
    )
    assert not check_coverage(buckets, shapes), "a bucket was left out that can be needed"
    reason = (
        f"no decode step has more than {shapes.max_decode_seqs} requests,"
        f" which {seqs[-1]} already holds"
    )
    unreachable = tuple(
        UnreachableBucket(DecodeBucket(batch, context), reason)
        for batch in unused_seqs
        for context in contexts
    )
    return buckets, unreachable
