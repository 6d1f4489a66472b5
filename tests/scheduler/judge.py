"""A worker that knows only what `SchedulerOutput` tells it, and believes nothing.

Where a real worker would write a token's KV, it writes a hash of all tokens up to that one. Whoever
reads a slot can therefore tell whether it holds the KV of exactly its own prefix. The next token is
derived from the prefix too, so what a request should produce is known without any scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neuron_llm.scheduler import (
    NULL_BLOCK_ID,
    FinishReason,
    ModelRunnerOutput,
    Request,
    SchedulerConfig,
    SchedulerOutput,
    get_bucket_for_count,
)

EMPTY_PREFIX = 1


def extend_prefix(prefix: int, token_id: int) -> int:
    return hash((prefix, token_id))


def sample_token(prefix: int, vocab_size: int) -> int:
    return prefix // 7 % vocab_size


def expected_output(
    request: Request, max_model_len: int, vocab_size: int
) -> tuple[list[int], FinishReason, int | None]:
    """Return the tokens, finish reason and stop reason of a request that runs alone."""
    prefix = EMPTY_PREFIX
    for token_id in request.prompt_token_ids:
        prefix = extend_prefix(prefix, token_id)
    output: list[int] = []
    eos_token_ids = frozenset() if request.ignore_eos else request.eos_token_ids
    while True:
        token_id = sample_token(prefix, vocab_size)
        prefix = extend_prefix(prefix, token_id)
        output.append(token_id)
        may_stop = len(output) >= request.min_tokens
        if may_stop and token_id in eos_token_ids:
            return output, FinishReason.STOP, None
        if may_stop and token_id in request.stop_token_ids:
            return output, FinishReason.STOP, token_id
        room = min(request.max_tokens, max_model_len - len(request.prompt_token_ids))
        if len(output) == room:
            return output, FinishReason.LENGTH, None


@dataclass
class _Known:
    """What the worker knows of one request; `prefixes[i]` names the tokens 0..i."""

    num_prompt_tokens: int
    block_ids: list[int]
    prefixes: list[int] = field(default_factory=list)

    def append(self, token_id: int) -> None:
        parent = self.prefixes[-1] if self.prefixes else EMPTY_PREFIX
        self.prefixes.append(extend_prefix(parent, token_id))


class JudgeWorker:
    """Executes steps in the order in which they were scheduled."""

    def __init__(self, config: SchedulerConfig, vocab_size: int) -> None:
        self.config = config
        self.vocab_size = vocab_size
        self.known: dict[str, _Known] = {}
        # slots[block_id][offset]; None was never written.
        self.slots: list[list[int | None]] = [
            [None] * config.block_size for _ in range(config.num_blocks)
        ]

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        for req_id in output.finished_req_ids:
            self.known.pop(req_id, None)
        starts = self._take_in(output)
        assert list(starts) == list(output.num_scheduled_tokens), "batch order differs"
        assert output.total_num_scheduled_tokens == sum(output.num_scheduled_tokens.values())
        self._check_batch(output, starts)
        sampled = [
            self._compute(self.known[req_id], starts[req_id], num_tokens)
            for req_id, num_tokens in output.num_scheduled_tokens.items()
        ]
        return ModelRunnerOutput(list(output.num_scheduled_tokens), sampled)

    def _take_in(self, output: SchedulerOutput) -> dict[str, int]:
        """Learn new requests and blocks; return where each request's tokens start."""
        starts = {}
        cached = output.scheduled_cached_reqs
        assert cached.num_reqs == len(cached.new_block_ids) == len(cached.num_computed_tokens)
        for index, req_id in enumerate(cached.req_ids):
            known = self.known[req_id]
            known.block_ids += cached.new_block_ids[index]
            starts[req_id] = cached.num_computed_tokens[index]
            num_output_tokens = max(0, len(known.prefixes) - known.num_prompt_tokens)
            assert cached.num_output_tokens[index] == num_output_tokens, "outputs miscounted"
        for new in output.scheduled_new_reqs:
            assert new.req_id not in self.known, f"`{new.req_id}` is sent as new twice"
            known = _Known(len(new.prompt_token_ids), list(new.block_ids))
            for token_id in new.prompt_token_ids:
                known.append(token_id)
            self.known[new.req_id] = known
            starts[new.req_id] = new.num_computed_tokens
        return starts

    def _check_batch(self, output: SchedulerOutput, starts: dict[str, int]) -> None:
        """Assert that one compiled graph can take the step."""
        prefills = [i for i in starts if starts[i] < self.known[i].num_prompt_tokens]
        padded = output.num_scheduled_tokens_padded
        assert padded is not None and list(padded) == list(starts)
        if not prefills:
            assert set(output.num_scheduled_tokens.values()) <= {1}, "decode of several tokens"
            assert padded == output.num_scheduled_tokens, "decode is padded along tokens"
            assert len(starts) <= self.config.max_num_seqs, "more rows than compiled"
            return
        assert len(starts) == len(prefills) == 1, "a prefill does not run alone"
        num_tokens = output.num_scheduled_tokens[prefills[0]]
        buckets = self.config.num_batched_tokens_buckets
        assert padded[prefills[0]] == get_bucket_for_count(num_tokens, buckets)

    def _compute(self, known: _Known, start: int, num_tokens: int) -> list[int]:
        end = start + num_tokens
        assert 0 <= start < end <= len(known.prefixes), "computes tokens that do not exist"
        assert end < self.config.max_model_len, "position past the last compiled one"
        self._check_table(known.block_ids, end)
        self._write(known, start, end)
        self._check_slots(known, end)
        if end < len(known.prefixes):
            assert end < known.num_prompt_tokens, "a decode is left behind"
            return []
        token_id = sample_token(known.prefixes[-1], self.vocab_size)
        known.append(token_id)
        return [token_id]

    def _check_table(self, block_ids: Sequence[int], num_tokens: int) -> None:
        assert len(block_ids) == -(-num_tokens // self.config.block_size), "table of wrong length"
        assert len(set(block_ids)) == len(block_ids), "a block twice in one table"
        assert all(NULL_BLOCK_ID < b < self.config.num_blocks for b in block_ids)

    def _write(self, known: _Known, start: int, end: int) -> None:
        size = self.config.block_size
        for position in range(start, end):
            block_id = known.block_ids[position // size]
            self.slots[block_id][position % size] = known.prefixes[position]

    def _check_slots(self, known: _Known, num_tokens: int) -> None:
        """Assert that attention over the first `num_tokens` would see the request's own prefix."""
        size = self.config.block_size
        for index, block_id in enumerate(known.block_ids):
            expected = known.prefixes[index * size : min(num_tokens, (index + 1) * size)]
            assert self.slots[block_id][: len(expected)] == expected, "wrong KV slot"
