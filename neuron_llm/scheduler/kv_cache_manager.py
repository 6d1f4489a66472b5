"""Block tables: which blocks each request holds, and which full blocks later prompts may share.

Block layout of a request while it is scheduled:

    | computed, held | prefix hits | new blocks for this step |
    0                ^ num_computed_tokens                    ^ + num_new_tokens
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from neuron_llm.scheduler.block_pool import BlockPool, hash_block, num_blocks_for
from neuron_llm.scheduler.request import Request


@dataclass(slots=True)
class _BlockTable:
    block_ids: list[int]
    num_published_blocks: int


class KVCacheManager:
    """Gives requests blocks for the tokens they are about to compute.

    Args:
        num_blocks: blocks in the KV cache, the null block included.
        block_size: tokens per block.
        enable_prefix_caching: publish full blocks, and let requests start from them.
    """

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.block_pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._tables: dict[str, _BlockTable] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self.block_pool.num_free_blocks

    def blocks_held(self, request: Request) -> int:
        """Return how many blocks the request holds, shared ones included."""
        return len(self.block_ids(request))

    def block_ids(self, request: Request) -> Sequence[int]:
        """Return the request's block table, in token order."""
        table = self._tables.get(request.request_id)
        return table.block_ids if table else ()

    def cached_in_use(self, request: Request) -> int:
        """Return how many of the request's prefix hits somebody holds: those cost no free block."""
        return sum(self.block_pool.ref_count(b) > 0 for b in self.get_computed_blocks(request))

    def get_computed_blocks(self, request: Request) -> list[int]:
        """Return the published blocks that the request's tokens begin with; takes none of them.

        At least the last token is left to compute, since its logits are needed, and only whole
        blocks count: with blocks of 16, a 48-token prompt seen before hits 32 tokens, one of 49
        hits 48.
        """
        if not self.enable_prefix_caching or request.skip_reading_prefix_cache:
            return []
        num_blocks = (request.num_tokens - 1) // self.block_size
        self._extend_block_hashes(request, num_blocks)
        hits = []
        for block_hash in islice(request.block_hashes, num_blocks):
            block_id = self.block_pool.get_cached_block(block_hash)
            if block_id is None:
                break
            hits.append(block_id)
        return hits

    def can_hold_all_tokens(self, request: Request, computed_blocks: Sequence[int]) -> bool:
        """Whether a waiting request's tokens all fit now, not only those of its first chunk."""
        num_blocks = num_blocks_for(request.num_tokens, self.block_size)
        return self._num_taken(num_blocks - len(computed_blocks), computed_blocks) <= (
            self.num_free_blocks
        )

    def allocate_slots(
        self, request: Request, num_new_tokens: int, computed_blocks: Sequence[int] = ()
    ) -> list[int] | None:
        """Extend the request's table so that it holds `num_new_tokens` more.

        Blocks that become full are published at once, before the step has run: a step holds at most
        one prefill and steps run in order, so whoever finds the block reads it later than it is
        written.

        Args:
            request: its `num_computed_tokens` do not count `computed_blocks` yet.
            num_new_tokens: tokens to compute after those.
            computed_blocks: prefix hits of a request that holds nothing yet.

        Returns:
            The newly allocated block ids, without the hits; None, with nothing touched, if too few
            blocks are free.
        """
        table = self._tables.get(request.request_id) or _BlockTable([], 0)
        num_tokens = request.num_computed_tokens + num_new_tokens
        num_tokens += len(computed_blocks) * self.block_size
        num_new_blocks = num_blocks_for(num_tokens, self.block_size)
        num_new_blocks -= len(table.block_ids) + len(computed_blocks)
        new_block_ids: list[int] = []
        if num_new_blocks > 0 or computed_blocks:
            if self._num_taken(num_new_blocks, computed_blocks) > self.num_free_blocks:
                return None
            if computed_blocks:
                self.block_pool.touch(computed_blocks)
                table.block_ids += computed_blocks
                table.num_published_blocks += len(computed_blocks)
            new_block_ids = self.block_pool.allocate(num_new_blocks)
            table.block_ids += new_block_ids
            self._tables[request.request_id] = table
        if self.enable_prefix_caching:
            # A block with tokens that are still in flight has no hash yet: see `cache_blocks`.
            self._publish(request, table, min(num_tokens, request.num_tokens))
        self._settle(request, table)
        return new_block_ids

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Publish the full blocks of a running request's first `num_tokens`, now computed."""
        if self.enable_prefix_caching:
            table = self._tables[request.request_id]
            self._publish(request, table, num_tokens)
            self._settle(request, table)

    def free(self, request: Request) -> None:
        """Let go of all the request's blocks, the last first: a prefix outlives its tails."""
        table = self._tables.pop(request.request_id, None)
        if table is not None:
            self.block_pool.free(reversed(table.block_ids))

    def check_integrity(self) -> None:
        """Assert that every held block is in exactly as many tables as its count says."""
        self.block_pool.check_integrity()
        held = Counter(b for table in self._tables.values() for b in table.block_ids)
        for block_id in range(self.block_pool.num_blocks):
            ref_count = self.block_pool.ref_count(block_id)
            assert held[block_id] == ref_count, f"block {block_id}: {held[block_id]} tables"

    def _num_taken(self, num_new_blocks: int, computed_blocks: Sequence[int]) -> int:
        """Return how many blocks leave the free queue: the new ones and hits that nobody holds."""
        if not computed_blocks:
            return num_new_blocks
        unheld_hits = sum(self.block_pool.ref_count(b) == 0 for b in computed_blocks)
        return num_new_blocks + unheld_hits

    def _settle(self, request: Request, table: _BlockTable) -> None:
        """Note up to how many tokens no block is missing or filled, and the end not reached."""
        num_blocks, num_published_blocks = len(table.block_ids), table.num_published_blocks
        num_tokens = (num_published_blocks + 1) * self.block_size
        is_shared = self.enable_prefix_caching and num_tokens <= request.max_shared_tokens
        if not is_shared or num_published_blocks == num_blocks:
            num_tokens = num_blocks * self.block_size + 1
        request.num_settled_tokens = min(num_tokens, request.max_num_tokens)

    def _publish(self, request: Request, table: _BlockTable, num_tokens: int) -> None:
        num_full_blocks = min(num_tokens, request.max_shared_tokens) // self.block_size
        if num_full_blocks <= table.num_published_blocks:
            return
        self._extend_block_hashes(request, num_full_blocks)
        new = slice(table.num_published_blocks, num_full_blocks)
        self.block_pool.cache_full_blocks(table.block_ids[new], request.block_hashes[new])
        table.num_published_blocks = num_full_blocks

    def _extend_block_hashes(self, request: Request, num_blocks: int) -> None:
        hashes = request.block_hashes
        for index in range(len(hashes), num_blocks):
            start = index * self.block_size
            token_ids = request.all_token_ids[start : start + self.block_size]
            parent, salt = (hashes[-1], None) if hashes else (None, request.cache_salt)
            hashes.append(hash_block(parent, token_ids, salt))
