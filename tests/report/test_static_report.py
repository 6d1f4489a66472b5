from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_factory import CONFIG, make_subject

from neuron_llm.report.static_report import static_report
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket


def test_every_graph_has_its_worst_and_expected_waste(tmp_path: Path) -> None:
    report = static_report(make_subject(tmp_path))
    assert [graph.bucket.name for graph in report.graphs] == [
        "prefill_t16",
        "prefill_t64",
        "decode_b1_c256",
        "decode_b4_c256",
    ]
    assert [graph.range.worst_padding_ratio for graph in report.graphs] == [
        15 / 16,
        47 / 64,
        0.0,
        0.5,
    ]
    # Counts 17 to 64 leave 47, 46, ... 0 of 64: on average 23.5.
    assert report.graphs[1].expected_padding_ratio == 23.5 / 64


def test_coverage_is_proven_and_unreachable_buckets_are_named(tmp_path: Path) -> None:
    text = CONFIG.replace("max_num_seqs: 4", "max_num_seqs: 8\nnum_gpu_blocks_override: 65")
    text = text.replace("[1, 4]", "[1, 2, 8]").replace("block_size: 4", "block_size: 64")
    text = text.replace("override: 65", "override: 5\nkv_admission: max_model_len")
    report = static_report(make_subject(tmp_path, text))
    # Four blocks are room for one request of 256 tokens.
    assert [dropped.bucket.name for dropped in report.unreachable] == [
        "decode_b2_c256",
        "decode_b8_c256",
    ]
    assert report.uncovered == ()
    assert report.to_json()["unreachable"][0]["reason"].startswith("no decode step has more")


def test_a_shape_without_a_graph_is_missing(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    shapes = replace(subject.plan.shapes, max_decode_seqs=5)
    report = static_report(replace(subject, plan=replace(subject.plan, shapes=shapes)))
    assert report.uncovered[0].startswith("a decode step of 5 requests")


def test_compile_time_is_what_is_on_record_and_else_that_of_like_graphs(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    assert static_report(subject).compile_seconds is None
    recorded: dict[Bucket, float] = {
        PrefillBucket(16): 30.0,
        PrefillBucket(32): 40.0,
        DecodeBucket(1, 256): 20.0,
    }
    report = static_report(replace(subject, compile_seconds=recorded))
    assert [graph.compile_seconds for graph in report.graphs] == [30.0, 35.0, 20.0, 20.0]
    assert (report.compile_seconds, report.num_recorded) == (105.0, 2)
    only_prefills = replace(subject, compile_seconds={PrefillBucket(16): 30.0})
    assert static_report(only_prefills).compile_seconds is None


@pytest.mark.parametrize("name", ["weights_bytes", "kv_cache_bytes", "total_bytes"])
def test_memory_is_the_plans(tmp_path: Path, name: str) -> None:
    subject = make_subject(tmp_path)
    expected = getattr(subject.plan.memory, name)
    assert static_report(subject).to_json()[name] == expected > 0
