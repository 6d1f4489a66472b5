"""The numbers a scheduler is built from, checked when they are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, cast

from neuron_llm.errors import ConfigError

KVAdmission = Literal["reserve", "max_model_len"]


class SchedulerLimits(Protocol):
    """Where the limits come from: a compile plan, or the settings of an artifact."""

    @property
    def max_model_len(self) -> int:
        """Prompt and output together, in tokens."""

    @property
    def max_num_seqs(self) -> int:
        """Most requests running together."""

    @property
    def max_num_batched_tokens(self) -> int:
        """Most tokens of one prefill step."""

    @property
    def block_size(self) -> int:
        """Tokens of a KV block."""

    @property
    def num_blocks(self) -> int:
        """KV blocks, the null block included."""

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether requests share the KV of equal beginnings."""

    @property
    def kv_admission(self) -> str:
        """`reserve` or `max_model_len`."""

    @property
    def max_consecutive_prefills(self) -> int | None:
        """Prefill steps in a row while a decode waits; None for no bound."""


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """Limits of the scheduler.

    Attributes:
        max_num_seqs: most requests running together.
        max_num_batched_tokens: most prompt tokens of one step; longer prompts are chunked.
        max_model_len: most tokens of a request, prompt and output.
        block_size: tokens per KV block.
        num_blocks: KV blocks, the null block included.
        num_batched_tokens_buckets: ascending prefill sizes in tokens; the last is the largest chunk
            that can occur, `min(max_num_batched_tokens, max_model_len)`.
        enable_prefix_caching: share full blocks among requests with equal prefixes.
        kv_admission: `reserve` starts a request when its own worst case fits beside what the
            running ones may still need; `max_model_len` assumes `max_model_len` tokens for each.
        max_consecutive_prefills: most prefill steps in a row that running decodes wait for; None
            for no bound.
        policy: only first come, first served.

    Raises:
        ConfigError: with one fault for every broken rule.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_blocks: int
    num_batched_tokens_buckets: tuple[int, ...]
    enable_prefix_caching: bool = True
    kv_admission: KVAdmission = "reserve"
    max_consecutive_prefills: int | None = None
    policy: str = "fcfs"

    def __post_init__(self) -> None:
        """Check every rule, and report all that are broken at once."""
        faults = (*self._count_faults(), *self._bucket_faults(), *self._choice_faults())
        if faults:
            raise ConfigError(f"the scheduler cannot start: {'; '.join(faults)}", faults=faults)

    @classmethod
    def of(cls, limits: SchedulerLimits, num_batched_tokens_buckets: Sequence[int]) -> Self:
        """Return what a plan or an artifact's settings ask for.

        Args:
            limits: every limit but the buckets.
            num_batched_tokens_buckets: the prefill graphs that are run, ascending.

        Raises:
            ConfigError: the graphs do not hold what the limits allow.
        """
        return cls(
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_model_len=limits.max_model_len,
            block_size=limits.block_size,
            num_blocks=limits.num_blocks,
            num_batched_tokens_buckets=tuple(num_batched_tokens_buckets),
            enable_prefix_caching=limits.enable_prefix_caching,
            kv_admission=cast(KVAdmission, limits.kv_admission),
            max_consecutive_prefills=limits.max_consecutive_prefills,
        )

    @property
    def max_chunk_tokens(self) -> int:
        """The largest prefill chunk that can occur."""
        return min(self.max_num_batched_tokens, self.max_model_len)

    def _count_faults(self) -> list[str]:
        minimums = {
            "max_num_seqs": 1,
            "max_num_batched_tokens": 1,
            # The longest prompt is one token shorter, so that there is room for an answer.
            "max_model_len": 2,
            "block_size": 1,
            # The null block and one that can be used.
            "num_blocks": 2,
        }
        faults = [
            f"`{name}` is {getattr(self, name)}, the least is {minimum}"
            for name, minimum in minimums.items()
            if getattr(self, name) < minimum
        ]
        if self.max_consecutive_prefills is not None and self.max_consecutive_prefills < 1:
            value = self.max_consecutive_prefills
            faults.append(f"`max_consecutive_prefills` is {value}, the least is 1")
        return faults

    def _bucket_faults(self) -> list[str]:
        buckets = self.num_batched_tokens_buckets
        faults = []
        if list(buckets) != sorted(set(buckets)) or (buckets and buckets[0] < 1):
            faults.append(
                f"`num_batched_tokens_buckets` {list(buckets)} must be positive and ascend"
            )
        if not buckets or buckets[-1] != self.max_chunk_tokens:
            faults.append(
                f"`num_batched_tokens_buckets` {list(buckets)} must end with the largest chunk, "
                f"{self.max_chunk_tokens}, the smaller of `max_num_batched_tokens` "
                f"{self.max_num_batched_tokens} and `max_model_len` {self.max_model_len}"
            )
        return faults

    def _choice_faults(self) -> list[str]:
        faults = []
        if self.kv_admission not in ("reserve", "max_model_len"):
            faults.append(
                f"`kv_admission` is `{self.kv_admission}`, it must be `reserve` or `max_model_len`"
            )
        if self.policy != "fcfs":
            faults.append(f"`policy` is `{self.policy}`, only `fcfs` is supported")
        return faults
