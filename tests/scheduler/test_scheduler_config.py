from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from scheduler_factory import make_config

from neuron_llm.errors import ConfigError


def test_the_largest_chunk_is_bounded_by_budget_and_model_length() -> None:
    assert make_config(max_num_batched_tokens=16, max_model_len=64).max_chunk_tokens == 16
    assert make_config(max_num_batched_tokens=100, max_model_len=64).max_chunk_tokens == 64


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"max_num_seqs": 0}, "`max_num_seqs` is 0, the least is 1"),
        ({"max_num_batched_tokens": 0}, "`max_num_batched_tokens` is 0, the least is 1"),
        ({"max_model_len": 1}, "`max_model_len` is 1, the least is 2"),
        ({"block_size": 0}, "`block_size` is 0, the least is 1"),
        ({"num_blocks": 1}, "`num_blocks` is 1, the least is 2"),
        ({"max_consecutive_prefills": 0}, "`max_consecutive_prefills` is 0, the least is 1"),
        ({"num_batched_tokens_buckets": (16, 8, 16)}, "must be positive and ascend"),
        ({"num_batched_tokens_buckets": (8, 8, 16)}, "must be positive and ascend"),
        ({"num_batched_tokens_buckets": (0, 16)}, "must be positive and ascend"),
        ({"num_batched_tokens_buckets": (8,)}, "must end with the largest chunk, 16"),
        ({"num_batched_tokens_buckets": (8, 32)}, "must end with the largest chunk, 16"),
        ({"num_batched_tokens_buckets": ()}, "must end with the largest chunk, 16"),
        ({"kv_admission": "all"}, "it must be `reserve` or `max_model_len`"),
        ({"policy": "priority"}, "`policy` is `priority`, only `fcfs` is supported"),
    ],
)
def test_each_broken_rule_is_named(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(**changes)
    assert any(fault in line for line in caught.value.faults)


def test_all_broken_rules_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(max_num_seqs=0, num_blocks=0, policy="priority")
    assert len(caught.value.faults) == 3
    assert all(fault in caught.value.message for fault in caught.value.faults)


def test_a_config_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        make_config().max_num_seqs = 9  # type: ignore[misc]
