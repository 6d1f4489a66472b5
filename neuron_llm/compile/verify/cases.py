"""What a graph is tried on: the lengths at which buckets, blocks and chunks end. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuron_llm.scheduler.block_pool import num_blocks_for
from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket

MAX_VERIFIED_CONTEXT = 4096
"""Tokens of the longest context that is tried, unless a graph serves none that are shorter: the
reference keeps every one of them in memory."""


@dataclass(frozen=True)
class CaseRow:
    """One request of a case: `num_tokens` tokens are computed after `start` that are cached."""

    start: int
    num_tokens: int

    @property
    def context_len(self) -> int:
        """Tokens in the cache when the graph has run."""
        return self.start + self.num_tokens


@dataclass(frozen=True)
class Case:
    """One call of a graph, and what is special about it."""

    description: str
    rows: tuple[CaseRow, ...]


@dataclass(frozen=True)
class Lengths:
    """The limits that cases keep to.

    Attributes:
        max_model_len: tokens of the longest request.
        block_size: tokens per KV block.
        num_usable_blocks: blocks that requests can have.
    """

    max_model_len: int
    block_size: int
    num_usable_blocks: int

    def max_context_tokens(self, needed_tokens: int) -> int:
        """Return the longest context that is tried of a graph that needs so many to be itself."""
        cached = self.num_usable_blocks * self.block_size
        return min(self.max_model_len, cached, max(MAX_VERIFIED_CONTEXT, needed_tokens))


def prefill_cases(bucket: PrefillBucket, buckets: BucketSet, lengths: Lengths) -> list[Case]:
    """Return the cases of a prefill graph.

    Full, one less, and the smallest chunk it serves, which is one more than the next smaller bucket
    holds; with nothing cached, with a cached prefix of whole blocks as a prefix hit leaves it, and
    behind a first chunk that ends within a block.
    """
    smaller = max((b.num_tokens for b in buckets.prefill if b < bucket), default=0)
    size, block = bucket.num_tokens, lengths.block_size
    sizes = {
        "full": size,
        "one less than full": size - 1,
        "the smallest it serves": smaller + 1,
    }
    starts = {"": 0, ", after a cached block": block, ", after a part of a block": block + 1}
    rows = {
        size_text + start_text: CaseRow(start, num_tokens)
        for size_text, num_tokens in sizes.items()
        for start_text, start in starts.items()
    }
    for num_tokens in (block - 1, block, block + 1):
        rows[f"{num_tokens} tokens, at the edge of a block"] = CaseRow(0, num_tokens)
    longest = lengths.max_context_tokens(size + block + 1)
    cases: dict[CaseRow, str] = {}
    for text, row in rows.items():
        if smaller < row.num_tokens <= size and row.context_len <= longest:
            cases.setdefault(row, text)
    return [Case(text, (row,)) for row, text in cases.items()]


def decode_cases(bucket: DecodeBucket, buckets: BucketSet, lengths: Lengths) -> list[Case]:
    """Return the cases of a decode graph.

    As many rows as it holds, one less, and the fewest it serves; the contexts of the rows end where
    blocks do and where the bucket's context does.
    """
    fewer = max(
        (b.batch_size for b in buckets.decode if b.batch_size < bucket.batch_size), default=0
    )
    context = bucket.max_context_tokens
    shorter = max(
        (b.max_context_tokens for b in buckets.decode if b.max_context_tokens < context), default=1
    )
    longest = min(context, lengths.max_context_tokens(shorter + 1))
    block = lengths.block_size
    edges = [longest, block, block + 1, longest - 1, block - 1, shorter + 1, 2 * block, 2]
    contexts = [n for n in dict.fromkeys(edges) if 1 < n <= longest]
    cases: dict[tuple[CaseRow, ...], str] = {}
    counts = {"all rows": bucket.batch_size, "one row free": bucket.batch_size - 1}
    counts["the fewest rows it serves"] = fewer + 1
    for text, count in counts.items():
        for first in range(0, len(contexts), max(count, 1)):
            rows = _rows(contexts[first:] + contexts[:first], count, lengths)
            if rows:
                cases.setdefault(rows, f"{text}, contexts of {_listed(rows)} tokens")
    return [Case(text, rows) for rows, text in cases.items()]


def _rows(contexts: list[int], count: int, lengths: Lengths) -> tuple[CaseRow, ...]:
    """Return `count` rows whose contexts take turns, as far as the blocks go round."""
    rows: list[CaseRow] = []
    free = lengths.num_usable_blocks
    for index in range(count):
        # Where long contexts do not fit any more, the shortest ones still may.
        for context in (contexts[index % len(contexts)], min(contexts)):
            needed = num_blocks_for(context, lengths.block_size)
            if needed <= free:
                free -= needed
                rows.append(CaseRow(context - 1, 1))
                break
    return tuple(rows) if len(rows) == count else ()


def _listed(rows: Iterable[CaseRow]) -> str:
    return ", ".join(str(row.context_len) for row in rows)
