"""Token ids for the prompts of a trace, which knows only which of them begin alike. Knows no torch.

A hash id becomes as many ids as a block of the trace has tokens, and no other id becomes any of
those. So prompts have equal ids as far as their hash ids are equal from the first, whatever the
blocks of the KV cache are; all else differs. Where blocks are smaller than those of the trace, what
two prompts share of a trace's block is not known, and taken for nothing.
"""

from __future__ import annotations

from neuron_llm.report.workload.trace import Trace, TraceRequest


class TraceTokens:
    """Makes prompts up.

    Args:
        trace: whose requests they are of.

    Attributes:
        are_shared: whether any prompts can be known to begin alike.
    """

    def __init__(self, trace: Trace) -> None:
        self.are_shared = trace.block_size is not None
        self._block_size = trace.block_size or 1
        self._first_ids: dict[int, int] = {}
        self._next_id = 0

    def prompt(self, request: TraceRequest) -> list[int]:
        """Return the token ids of a request's prompt."""
        if not self.are_shared:
            return [0] * request.prompt_tokens
        token_ids: list[int] = []
        for hash_id in request.hash_ids:
            first = self._first_ids.get(hash_id)
            if first is None:
                first = self._first_ids[hash_id] = self._take(self._block_size)
            token_ids += range(first, first + self._block_size)
        del token_ids[request.prompt_tokens :]
        num_left = request.prompt_tokens - len(token_ids)
        first = self._take(num_left)
        return [*token_ids, *range(first, first + num_left)]

    def _take(self, num_ids: int) -> int:
        first = self._next_id
        self._next_id += num_ids
        return first
