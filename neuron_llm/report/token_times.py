"""When each token of a simulated request comes. Knows no torch.

A decode step serves every request that decodes. So the times of all tokens but the first are a
stretch of the one list of times at which decode steps ended, and are not kept for each request.
"""

from __future__ import annotations

from array import array

from neuron_llm.runtime.engine.outputs import RequestTimes
from neuron_llm.scheduler import Request


class TokenTimes:
    """Notes when steps end.

    Attributes:
        num_decoding: requests that have their first token and not their last.
    """

    def __init__(self) -> None:
        self._decode_ends = array("d")
        self._first_tokens: dict[str, tuple[float, int]] = {}

    @property
    def num_decoding(self) -> int:
        """Requests that have their first token and not their last."""
        return len(self._first_tokens)

    def end_prefill(self, req_id: str, now_s: float) -> None:
        """Note that a request's prompt has been computed, which gives its first token."""
        self._first_tokens[req_id] = (now_s, len(self._decode_ends))

    def end_decode(self, now_s: float) -> None:
        """Note that a decode step has given each decoding request a token."""
        self._decode_ends.append(now_s)

    def finish(self, request: Request) -> RequestTimes:
        """Forget a request that has just got its last token; return when its tokens came."""
        first, num_before = self._first_tokens.pop(request.request_id)
        tokens = (first, *self._decode_ends[num_before:])
        assert len(tokens) == request.num_output_tokens, "a decode step left a request out"
        return RequestTimes(request.arrival_time, tokens)
