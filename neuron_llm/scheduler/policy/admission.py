"""Whether a request fits: into the limits at all, and beside what is running now.

A device that cannot take blocks back from a running request must never promise more than it has.
So a request starts only if every running request, and itself, can then grow to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from neuron_llm.errors import ConfigError, RequestError
from neuron_llm.scheduler.block_pool import num_blocks_for
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.request import Request


class KVPort(Protocol):
    """What admission asks of a KV cache, ours or another engine's."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""

    def blocks_held(self, request: Request) -> int:
        """Return how many blocks the request holds, shared ones included."""

    def cached_in_use(self, request: Request) -> int:
        """Return how many of the request's prefix hits running requests hold."""


def worst_case_blocks(request: Request, max_model_len: int, block_size: int) -> int:
    """Return the most blocks that the request can ever hold.

    The KV of the last sampled token is never written: a prompt of 8 with `max_tokens` 1 fits two
    blocks of 4, with `max_tokens` 2 it may need a third.
    """
    num_tokens = min(request.num_prompt_tokens + request.max_tokens, max_model_len)
    return num_blocks_for(num_tokens - 1, block_size)


def check_request(request: Request, config: SchedulerConfig) -> None:
    """Refuse a request that could never be scheduled.

    Raises:
        RequestError: with the code `empty_prompt`, `prompt_too_long`, `invalid_sampling` or
            `kv_too_small`.
    """
    if request.num_prompt_tokens == 0:
        raise RequestError("the prompt has no tokens", code="empty_prompt")
    _check_sampling(request)
    check_length(request, config)


def check_length(request: Request, config: SchedulerConfig) -> None:
    """Refuse a request that is too long for the model or for the KV cache.

    Raises:
        RequestError: with the code `prompt_too_long` or `kv_too_small`.
    """
    if request.num_prompt_tokens >= config.max_model_len:
        raise RequestError(
            f"the prompt has {request.num_prompt_tokens} tokens and `max_model_len` "
            f"{config.max_model_len} leaves room for {config.max_model_len - 1}",
            code="prompt_too_long",
            hint="shorten the prompt or compile with a larger `max_model_len`",
        )
    needed = worst_case_blocks(request, config.max_model_len, config.block_size)
    if needed > config.num_blocks - 1:
        raise RequestError(
            f"a prompt of {request.num_prompt_tokens} tokens with `max_tokens` "
            f"{request.max_tokens} needs {needed} KV blocks and {config.num_blocks - 1} are "
            "available",
            code="kv_too_small",
            hint="lower `max_tokens`, shorten the prompt or compile with more KV blocks",
        )


def _check_sampling(request: Request) -> None:
    for name, value, minimum in (
        ("max_tokens", request.max_tokens, 1),
        ("min_tokens", request.min_tokens, 0),
    ):
        # A bool is an int to Python, but not a number of tokens to anyone.
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise RequestError(
                f"`{name}` is {value!r}, it must be an integer of at least {minimum}",
                code="invalid_sampling",
            )
    if request.min_tokens > request.max_tokens:
        raise RequestError(
            f"`min_tokens` {request.min_tokens} is more than `max_tokens` {request.max_tokens}",
            code="invalid_sampling",
        )


class KVAdmission:
    """Decides whether the KV cache has room for one more running request.

    Args:
        config: the limits; `kv_admission` picks the rule.
        kv: the KV cache.

    Raises:
        ConfigError: `kv_admission` is `max_model_len` and not one such request fits.
    """

    def __init__(self, config: SchedulerConfig, kv: KVPort) -> None:
        self._config = config
        self._kv = kv
        self._refused: tuple[Request, int, Request | None] | None = None
        blocks_per_seq = num_blocks_for(config.max_model_len, config.block_size)
        # Block 0 is never handed out. Counting it lets one request too many start whenever
        # `num_blocks` is an exact multiple, and then no step can run.
        self.max_concurrent = (config.num_blocks - 1) // blocks_per_seq
        if config.kv_admission == "max_model_len" and self.max_concurrent == 0:
            raise ConfigError(
                f"`num_blocks` {config.num_blocks} holds no request of `max_model_len` "
                f"{config.max_model_len}: {blocks_per_seq + 1} blocks are needed, "
                f"{blocks_per_seq} for the request and the null block",
                hint="give the KV cache more memory or lower `max_model_len`",
            )

    def has_room(self, request: Request, running: list[Request]) -> bool:
        """Whether the request can start beside `running` and all of them run to their ends."""
        if self._config.kv_admission == "max_model_len":
            return len(running) < self.max_concurrent
        # What a running request takes was promised to it, so room appears only when one finishes.
        # `running` is in order of admission: with the same length and the same last request, none
        # has finished and none was added.
        question = (request, len(running), running[-1] if running else None)
        if question == self._refused:
            return False
        has_room = self._has_reserve(request, running)
        self._refused = None if has_room else question
        return has_room

    def _has_reserve(self, request: Request, running: list[Request]) -> bool:
        spare = self._kv.num_free_blocks - self.promised_blocks(running)
        needed = self.worst_case_blocks(request)
        # Looking up prefixes walks over the prompt's blocks, so only where it can matter.
        return needed <= spare or needed - self._kv.cached_in_use(request) <= spare

    def forget_refusal(self) -> None:
        """Ask anew next time: blocks may have come back without a running request's end."""
        self._refused = None

    def worst_case_blocks(self, request: Request) -> int:
        """Return the most blocks that the request can ever hold."""
        return worst_case_blocks(request, self._config.max_model_len, self._config.block_size)

    def promised_blocks(self, running: Iterable[Request]) -> int:
        """Return how many more blocks the running requests may come to need."""
        return sum(self.worst_case_blocks(r) - self._kv.blocks_held(r) for r in running)

    def explain(self, request: Request, running: list[Request]) -> str:
        """Return the numbers behind `has_room`, for a person."""
        if self._config.kv_admission == "max_model_len":
            return f"{len(running)} running, room for {self.max_concurrent} of `max_model_len`"
        return (
            f"{self.worst_case_blocks(request)} blocks needed, "
            f"{self._kv.cached_in_use(request)} of them shared, {self._kv.num_free_blocks} free, "
            f"{self.promised_blocks(running)} promised to running requests"
        )
