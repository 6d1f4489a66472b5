"""Which prompt tokens of a trace a prefix cache would have spared. Knows no torch.

The rules are the scheduler's own: only full blocks are shared, and at least the last token of a
prompt is computed, since its logits are needed. Two things make the figures a lower bound: a trace
does not say which ids the tokens of an answer would have, so that an answer that comes back as part
of the next prompt is found only from the second time on; and where blocks are smaller than those of
the trace, what two prompts share of a trace's block is not known.

Requests are taken one after another, in order of arrival, as if each ended before the next began.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.report.workload.trace import Trace


@dataclass(frozen=True)
class PrefillWork:
    """What a prefix cache leaves to compute of each prompt.

    Attributes:
        num_computed_tokens: tokens to compute by prompt, in order of arrival, each at least 1.
        num_cached_tokens: the tokens before those, which were found in the cache.
    """

    num_computed_tokens: Sequence[int]
    num_cached_tokens: Sequence[int]

    @property
    def lengths(self) -> LengthHistogram:
        """How often each number of tokens has to be computed."""
        return LengthHistogram.of(self.num_computed_tokens)

    @property
    def cached_tokens(self) -> Mapping[int, int]:
        """By tokens to compute, the cached tokens of all those prompts together."""
        sums: Counter[int] = Counter()
        for computed, cached in zip(self.num_computed_tokens, self.num_cached_tokens, strict=True):
            if cached:
                sums[computed] += cached
        return sums


class PrefixCache:
    """Blocks of a trace in a cache of least recent use.

    A prompt's blocks go in the reverse of their order, so that a prefix outlives its tails.

    Args:
        block_size: tokens of a block of the trace.
        num_blocks: how many blocks there are; None for as many as anyone needs.
    """

    def __init__(self, block_size: int, num_blocks: int | None = None) -> None:
        self._block_size = block_size
        self._num_blocks = num_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def compute(self, hash_ids: Sequence[int], num_tokens: int) -> int:
        """Compute a prompt, and return how many of its full blocks, from the first, were there.

        A cache too small for the prompt keeps what fits of its beginning.

        Args:
            hash_ids: of its blocks, the last possibly not full.
            num_tokens: its length.
        """
        blocks = self._blocks
        num_full, num_rest = divmod(num_tokens, self._block_size)
        full = hash_ids[:num_full]
        num_hits = sum(1 for _ in takewhile(blocks.__contains__, full))
        for hash_id in reversed(full):
            blocks[hash_id] = None
            blocks.move_to_end(hash_id)
        if self._num_blocks is not None:
            # A block that is not full takes a place too, and nobody finds it again.
            num_kept = max(self._num_blocks - (num_rest > 0), 0)
            while len(blocks) > num_kept:
                blocks.popitem(last=False)
        return num_hits


def all_computed(trace: Trace) -> PrefillWork:
    """Return the work without a prefix cache: every token of every prompt."""
    lengths = [request.prompt_tokens for request in trace.requests]
    return PrefillWork(lengths, [0] * len(lengths))


def computed_after_hits(
    trace: Trace, *, block_size: int, cache_tokens: int | None = None
) -> PrefillWork:
    """Return the work that a prefix cache leaves; without hash ids, all of it.

    With blocks of 16, a prompt of 48 tokens that was there before leaves 16 to compute, one of 49
    leaves 1.

    Args:
        trace: whose requests come one after another.
        block_size: tokens of a block of the KV cache; hits are whole blocks.
        cache_tokens: how many tokens the KV cache holds; None for any number.
    """
    if trace.block_size is None:
        return all_computed(trace)
    num_blocks = None if cache_tokens is None else cache_tokens // trace.block_size
    cache = PrefixCache(trace.block_size, num_blocks)
    computed, cached = [], []
    for request in trace.requests:
        num_tokens = request.prompt_tokens
        shared = cache.compute(request.hash_ids, num_tokens) * trace.block_size
        num_hit = min(shared, num_tokens - 1) // block_size * block_size
        computed.append(num_tokens - num_hit)
        cached.append(num_hit)
    return PrefillWork(computed, cached)
