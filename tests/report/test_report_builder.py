from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_factory import CONFIG, make_subject, write_lengths, write_rows

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.bucket_report import BucketReport
from neuron_llm.report.report_builder import ReportBuilder, ReportQuestion
from neuron_llm.report.what_if import RECOMMENDED


def build(directory: Path, question: ReportQuestion, text: str = CONFIG) -> BucketReport:
    return ReportBuilder(make_subject(directory, text), None).build(question)


def test_without_a_workload_only_the_graphs_are_reported(tmp_path: Path) -> None:
    document = build(tmp_path, ReportQuestion()).to_json()
    assert json.loads(json.dumps(document)) == document
    assert (document["workload"], document["prefill"], document["total"]) == (None, None, None)
    assert [graph["num_uses"] for graph in document["graphs"]] == [None] * 4


def test_uses_are_counted_from_prompts_alone_and_decodes_are_left_out(tmp_path: Path) -> None:
    trace = write_lengths(tmp_path / "t.csv", 5, 16, 17, 100)
    document = build(tmp_path, ReportQuestion(trace=trace)).to_json()
    small, large, *decodes = document["graphs"]
    # 100 tokens are a chunk of 64 and one of 36.
    assert (small["num_uses"], small["num_real_tokens"], small["num_padded_tokens"]) == (2, 21, 11)
    assert (large["num_uses"], large["num_real_tokens"], large["num_padded_tokens"]) == (3, 117, 75)
    assert [graph["num_uses"] for graph in decodes] == [None, None]
    assert document["workload"]["num_chunked_prompts"] == 1
    assert document["workload"]["max_chunks"] == 2
    # 5 and 17 leave 3 slots of a block of 4 each.
    assert document["workload"]["num_block_padded_tokens"] == 6


def test_prompts_that_are_too_long_and_bad_rows_are_all_listed(tmp_path: Path) -> None:
    rows = ["0,255,1", "1,256,1", "x,1,1", "2,999,1", "3,0,1"]
    document = build(
        tmp_path, ReportQuestion(trace=write_rows(tmp_path / "t.csv", *rows))
    ).to_json()["workload"]
    assert document["refused"] == [
        {"line": 3, "prompt_tokens": 256},
        {"line": 5, "prompt_tokens": 999},
    ]
    assert [row["line"] for row in document["bad_rows"]] == [4, 6]
    assert document["num_prompts"] == 1
    histogram = document["prompt_histogram"]
    assert sum(each["num_lengths"] for each in histogram) == 3
    assert histogram[-1]["max_tokens"] == 999


def test_a_workload_that_cannot_run_at_all_has_no_recommendation(tmp_path: Path) -> None:
    report = build(tmp_path, ReportQuestion(trace=write_lengths(tmp_path / "t.csv", 300, 400)))
    assert report.prefill is None
    assert report.workload is not None and len(report.workload.refused) == 2


def test_the_recommendation_has_as_many_graphs_as_there_are_unless_told(tmp_path: Path) -> None:
    trace = write_lengths(tmp_path / "t.csv", *[20] * 9, *[40] * 5, 7)
    advice = build(tmp_path, ReportQuestion(trace=trace)).prefill
    assert advice is not None
    assert advice.recommended.buckets == (20, 64)
    assert advice.is_saving
    more = build(tmp_path, ReportQuestion(trace=trace, max_graphs=3)).prefill
    assert more is not None and more.recommended.buckets == (20, 40, 64)
    coarse = build(tmp_path, ReportQuestion(trace=trace, granularity=32)).prefill
    assert coarse is not None and coarse.recommended.buckets == (32, 64)


def test_fewer_graphs_are_never_said_to_save_where_they_do_not(tmp_path: Path) -> None:
    trace = write_lengths(tmp_path / "t.csv", *[16] * 9, *[60] * 5)
    advice = build(tmp_path, ReportQuestion(trace=trace, max_graphs=1)).prefill
    assert advice is not None
    assert not advice.is_saving
    assert advice.against_current.saved_share is None
    assert advice.against_current.num_graphs_more == -1


def test_a_larger_chunk_moves_the_last_bucket(tmp_path: Path) -> None:
    trace = write_lengths(tmp_path / "t.csv", 100, 120, 20)
    advice = build(tmp_path, ReportQuestion(trace=trace, max_chunk_tokens=1000)).prefill
    assert advice is not None
    # No chunk is longer than `max_model_len`.
    assert advice.recommended.buckets == (120, 256)


def test_simulations_side_by_side_and_the_recommended_one_is_simulated(tmp_path: Path) -> None:
    trace = write_lengths(tmp_path / "t.csv", *[20] * 9, *[40] * 5, output_tokens=30)
    report = build(tmp_path, ReportQuestion(trace=trace, is_simulated=True, target="trn2"))
    what_if = report.what_if
    assert what_if is not None and report.prefill is not None
    names = [simulation.candidate.name for simulation in what_if.simulations]
    assert names == ["current", "default", RECOMMENDED]
    sizes = tuple(what_if.recommended.candidate.buckets.num_batched_tokens_buckets)
    assert sizes == report.prefill.recommended.buckets
    if what_if.is_decode_advised:
        choice = what_if.decode_choice
        rows = what_if.recommended.candidate.buckets.num_seqs_buckets
        assert tuple(rows) == choice.num_seqs_buckets
    # Uses are those of the simulation of the configured graphs, decodes included.
    document = report.to_json()
    assert document["usage_source"] == "simulation"
    total = document["total"]
    assert total["num_real_tokens"] == 9 * 20 + 5 * 40 + 14 * 29
    assert "roofline of trn2" in str(report.timing)
    json.dumps(document)


def test_a_prefix_cache_leaves_only_the_rest_to_fit(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [
        {"arrival_s": i, "prompt_tokens": 40, "output_tokens": 2, "block_size": 4}
        | {"hash_ids": [*range(8), 100 + 2 * i, 101 + 2 * i]}
        for i in range(3)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    workload = build(tmp_path, ReportQuestion(trace=path)).workload
    assert workload is not None
    assert list(workload.work.num_computed_tokens) == [40, 8, 8]
    off = build(tmp_path, ReportQuestion(trace=path), CONFIG + "enable_prefix_caching: false\n")
    assert off.workload is not None
    assert list(off.workload.work.num_computed_tokens) == [40, 40, 40]


def test_prompts_need_a_tokenizer_directory(tmp_path: Path) -> None:
    subject = replace(make_subject(tmp_path), tokenizer_dir=None)
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}')
    with pytest.raises(NeuronLLMError, match="GGUF"):
        ReportBuilder(subject, None).build(ReportQuestion(prompts=path))


def test_an_unknown_target_is_refused_by_name(tmp_path: Path) -> None:
    trace = write_lengths(tmp_path / "t.csv", 5)
    with pytest.raises(NeuronLLMError, match="no figures of the target `gpu`"):
        build(tmp_path, ReportQuestion(trace=trace, target="gpu"))
