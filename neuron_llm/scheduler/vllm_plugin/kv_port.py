"""vLLM's KV cache as admission sees it."""

from __future__ import annotations

from typing import Any


class VllmKV:
    """Answers admission's questions from vLLM's `KVCacheManager`; changes nothing in it.

    Args:
        kv_cache_manager: of a model with one KV cache group.
    """

    def __init__(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        count: int = self._manager.block_pool.get_num_free_blocks()
        return count

    def blocks_held(self, request: Any) -> int:
        """Return how many blocks the request holds, shared ones included."""
        return len(self._manager.get_blocks(request.request_id).blocks[0])

    def cached_in_use(self, request: Any) -> int:
        """Return how many of the request's prefix hits somebody holds: those cost no free block.

        A request whose KV was transferred before it starts holds all of its hits itself.
        """
        if num_held := self.blocks_held(request):
            return num_held
        if request.skip_reading_prefix_cache or not self._manager.enable_caching:
            return 0
        # Not the manager's own look-up: some versions of it count every call as a query.
        hits = self._manager.coordinator.find_longest_cache_hit(
            request.block_hashes, request.num_tokens - 1
        )[0]
        return sum(block.ref_cnt > 0 for block in hits[0])
