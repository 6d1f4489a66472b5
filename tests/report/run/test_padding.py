"""The padding account: what a step counts as, and sums that agree with the log of the run."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_factory import BUCKETS, decode_step, prefill_step, steps

from neuron_llm.report.run.padding import PaddingAccount, PaddingCounts, counts_of
from neuron_llm.report.run.run_log_reader import RunLogReader
from neuron_llm.runtime.run_log import RunHeader, RunLogWriter
from neuron_llm.scheduler.buckets import DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord


def account_of(recorded: list[StepRecord]) -> PaddingAccount:
    account = PaddingAccount(BUCKETS.all)
    for step in recorded:
        account.add(step)
    return account


def test_prefill_is_padded_in_its_length() -> None:
    counts = counts_of(prefill_step(5, size=8, cached=12))
    assert counts == PaddingCounts(
        num_uses=1,
        num_real_tokens=5,
        num_length_padded_tokens=3,
        num_cached_tokens=12,
        seconds=0.5,
    )
    assert counts.num_padded_tokens == 3
    assert counts.padding_ratio == 3 / 8
    assert counts.context_padding_ratio is None
    assert counts.mean_ms == 500.0


def test_decode_is_padded_in_rows_and_apart_from_that_in_context() -> None:
    counts = counts_of(decode_step(100, 30, 6, size=4, room=128))
    assert counts == PaddingCounts(
        num_uses=1,
        num_real_tokens=3,
        num_row_padded_tokens=1,
        num_decode_context_tokens=136,
        num_context_padded_tokens=3 * 128 - 136,
        seconds=0.25,
    )
    assert counts.num_padded_tokens == 1
    assert counts.padding_ratio == 1 / 4
    assert counts.context_padding_ratio == (3 * 128 - 136) / (3 * 128)


def test_exact_fit_has_no_padding() -> None:
    assert counts_of(prefill_step(16, size=16)).padding_ratio == 0.0
    assert counts_of(decode_step(128, size=1, room=128)).context_padding_ratio == 0.0


def test_bucket_that_no_step_used_is_there_with_zeros() -> None:
    account = account_of([prefill_step(5, size=8)])
    assert list(account.by_bucket) == list(BUCKETS.all)
    unused = account.by_bucket[DecodeBucket(4, 256)]
    assert unused == PaddingCounts()
    assert (unused.padding_ratio, unused.context_padding_ratio, unused.mean_ms) == (None,) * 3


def test_step_in_a_bucket_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        account_of([prefill_step(5, size=32)])


def test_account_as_json_names_every_graph_and_can_be_parsed() -> None:
    account = account_of([prefill_step(5, size=8), prefill_step(8, size=8, seconds=0.25)])
    report = json.loads(json.dumps(account.to_json()))
    assert [graph["graph"] for graph in report["graphs"]] == [b.name for b in BUCKETS.all]
    assert report["graphs"][0]["num_uses"] == 2
    assert report["total"] == {
        "num_uses": 2,
        "num_real_tokens": 13,
        "num_length_padded_tokens": 3,
        "num_row_padded_tokens": 0,
        "num_padded_tokens": 3,
        "num_cached_tokens": 0,
        "num_decode_context_tokens": 0,
        "num_context_padded_tokens": 0,
        "seconds": 0.75,
        "padding_ratio": 3 / 16,
        "context_padding_ratio": None,
        "mean_ms": 375.0,
    }


@given(st.lists(steps(), max_size=40))
def test_real_and_padded_tokens_fill_every_tensor(recorded: list[StepRecord]) -> None:
    account = account_of(recorded)
    for bucket, counts in account.by_bucket.items():
        is_prefill = isinstance(bucket, PrefillBucket)
        size = bucket.num_tokens if isinstance(bucket, PrefillBucket) else bucket.batch_size
        assert counts.num_real_tokens + counts.num_padded_tokens == counts.num_uses * size
        if isinstance(bucket, DecodeBucket):
            room = counts.num_real_tokens * bucket.max_context_tokens
            context = counts.num_decode_context_tokens + counts.num_context_padded_tokens
            assert context == room
        assert (
            counts.num_row_padded_tokens if is_prefill else counts.num_length_padded_tokens
        ) == 0


@given(st.lists(steps(), min_size=1, max_size=40))
def test_sums_agree_with_the_log_of_the_run_exactly(recorded: list[StepRecord]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "last_run.jsonl"
        with RunLogWriter(path, RunHeader("a1", "2030-01-01T00:00:00+00:00")) as log:
            for step in recorded:
                log.write(step)
        lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        with RunLogReader(path, "a1", BUCKETS.all) as reader:
            account = account_of(list(reader))
    total = account.total
    assert total.num_uses == len(lines)
    assert total.num_real_tokens == sum(line["num_tokens"] for line in lines)
    assert total.num_cached_tokens == sum(line["num_cached_tokens"] for line in lines)
    assert total.seconds == sum(line["seconds"] for line in lines)
    sizes = [line["bucket"].get("num_tokens") or line["bucket"]["batch_size"] for line in lines]
    assert total.num_real_tokens + total.num_padded_tokens == sum(sizes)
