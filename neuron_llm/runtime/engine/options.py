"""How an artifact is served, as far as whoever runs it decides. Knows no torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What an engine does beside serving.

    Attributes:
        self_test: run the artifact's golden tokens when it is loaded, and refuse to serve if the
            graphs give others.
        reproducible: run only the largest graph of each phase, and let the prefix cache hold only
            what prefills computed. Then a request's tokens and log probabilities do not depend on
            what else is in the batch, on order, on concurrency or on what the prefix cache holds:
            every token of a prompt goes through one graph and every sampled one through another,
            whose operators compute each row by itself.
    """

    self_test: bool = True
    reproducible: bool = False

    def max_shared_tokens(self, num_prompt_tokens: int, is_scored: bool) -> int:
        """Return of how many of a request's tokens others may read the KV: see `Request`.

        Args:
            num_prompt_tokens: of its prompt.
            is_scored: the prompt's log probabilities are wanted, for which decode graphs compute
                it.
        """
        if not self.reproducible:
            return sys.maxsize
        return 0 if is_scored else num_prompt_tokens


DEFAULT_OPTIONS = EngineOptions()
"""Tested when loaded, and as fast as the graphs allow."""
