"""The pool of KV blocks: who holds which, which are free, and which hold a known token prefix.

Knows block ids and hashes only; which request a block belongs to is the KV cache manager's matter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import pack
from typing import NewType

from neuron_llm.errors import OutOfBlocksError

NULL_BLOCK_ID = 0
"""Never handed out: padded table entries point here, and padded writes may land here."""

BlockHash = NewType("BlockHash", bytes)
"""Names the content of a full block: its tokens and every token before them."""


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient rounded up. 65 in pieces of 32 are 3 pieces."""
    return -(-numerator // denominator)


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold `num_tokens`. 9 tokens in blocks of 4 take 3."""
    return ceil_div(num_tokens, block_size)


def hash_block(
    parent: BlockHash | None, token_ids: Sequence[int], salt: str | None = None
) -> BlockHash:
    """Return the hash of a full block.

    Args:
        parent: the hash of the block before it, None for the first block of a request.
        token_ids: the block's tokens.
        salt: only given with the first block; the chain carries it to all others.
    """
    assert parent is None or salt is None, "only the first block is salted"
    # The digest in front has a fixed length, so no salt can be mistaken for tokens.
    prefix = parent if parent is not None else sha256((salt or "").encode()).digest()
    return BlockHash(sha256(prefix + pack(f"{len(token_ids)}q", *token_ids)).digest())


class BlockPool:
    """Blocks `1 .. num_blocks - 1`, counted by how many requests hold each.

    A freed block keeps its content and its hash until it is handed out again, so that a later
    request with the same prefix can still take it. Blocks without a hash are reused first, then the
    least recently freed.

    Args:
        num_blocks: blocks in the KV cache, the null block included; at least 2.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 2, "one null block and one usable block"
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._block_hashes: list[BlockHash | None] = [None] * num_blocks
        # An ordered dict is a linked list with a map into it: a prefix hit takes its block out of
        # the middle in O(1), which a deque cannot do.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        # Two requests may compute the same block at once; both copies stay known.
        self._cached: dict[BlockHash, dict[int, None]] = {}

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that can be held: all but the null block."""
        return self.num_blocks - 1

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds; some of them may still have a hash."""
        return len(self._free)

    def ref_count(self, block_id: int) -> int:
        """Return how many requests hold the block."""
        return self._ref_counts[block_id]

    def allocate(self, num_blocks: int) -> list[int]:
        """Hand out blocks, each held once; what they held before is forgotten.

        Raises:
            OutOfBlocksError: fewer blocks are free; then none is handed out.
        """
        if num_blocks > len(self._free):
            raise OutOfBlocksError(f"{num_blocks} blocks are needed and {len(self._free)} are free")
        block_ids = []
        for _ in range(num_blocks):
            block_id, _ = self._free.popitem(last=False)
            block_ids.append(block_id)
            self._ref_counts[block_id] = 1
            if self._block_hashes[block_id] is not None:
                self._forget(block_id)
        return block_ids

    def touch(self, block_ids: Iterable[int]) -> None:
        """Hold each block once more; a free one leaves the free queue."""
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                del self._free[block_id]
            self._ref_counts[block_id] += 1

    def free(self, block_ids: Iterable[int]) -> None:
        """Let go of each block once, in the order in which they should be reused."""
        for block_id in block_ids:
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                self._free[block_id] = None
                if self._block_hashes[block_id] is None:
                    # Nobody can ever find it again: reuse it before any block with a prefix.
                    self._free.move_to_end(block_id, last=False)

    def cache_full_blocks(
        self, block_ids: Sequence[int], block_hashes: Sequence[BlockHash]
    ) -> None:
        """Let `get_cached_block` find held blocks by their contents.

        Args:
            block_ids: full blocks, none of them published before.
            block_hashes: the hash of each.
        """
        for block_id, block_hash in zip(block_ids, block_hashes, strict=True):
            assert self._ref_counts[block_id] > 0, "only a held block is published"
            assert self._block_hashes[block_id] is None, "a block is published once"
            self._block_hashes[block_id] = block_hash
            self._cached.setdefault(block_hash, {})[block_id] = None

    def get_cached_block(self, block_hash: BlockHash) -> int | None:
        """Return a block with this content, None if there is none."""
        copies = self._cached.get(block_hash)
        return next(iter(copies)) if copies else None

    def reset_prefix_cache(self) -> bool:
        """Forget every hash if no block is held; return whether that was so."""
        if len(self._free) != self.num_usable_blocks:
            return False
        self._block_hashes = [None] * self.num_blocks
        self._cached.clear()
        return True

    def check_integrity(self) -> None:
        """Assert that counts, free queue and hashes agree."""
        assert NULL_BLOCK_ID not in self._free, "null block is free"
        assert self._ref_counts[NULL_BLOCK_ID] == 0, "null block is held"
        assert self._block_hashes[NULL_BLOCK_ID] is None, "null block is published"
        assert min(self._ref_counts) >= 0, "block freed more often than held"
        unheld = {b for b in range(1, self.num_blocks) if self._ref_counts[b] == 0}
        assert set(self._free) == unheld, "free queue and reference counts differ"
        published = {b: h for b, h in enumerate(self._block_hashes) if h is not None}
        cached = {b: h for h, copies in self._cached.items() for b in copies}
        assert cached == published, "prefix cache and block hashes differ"
        assert all(self._cached.values()), "prefix cache keeps a hash without a block"

    def _forget(self, block_id: int) -> None:
        block_hash = self._block_hashes[block_id]
        assert block_hash is not None
        copies = self._cached[block_hash]
        del copies[block_id]
        if not copies:
            del self._cached[block_hash]
        self._block_hashes[block_id] = None
