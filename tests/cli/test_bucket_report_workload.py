"""`neuron-llm bucket-report` on a configuration that nobody has compiled, and a workload."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli_runner import run_cli
from config_factory import write_config
from conftest import Compiled

from neuron_llm.report.step_time.roofline import ROOFLINE_TARGETS

CONFIG = """\
max_model_len: 256   # prompt and output
max_num_seqs: 4
max_num_batched_tokens: 64
block_size: 4
neuron_config:
  num_batched_tokens_buckets: [16, 64]   # prefills
  num_seqs_buckets: [1, 4]
"""
LENGTHS = [20] * 9 + [40] * 5 + [7, 100, 300]


@pytest.fixture
def config(tmp_path: Path, empty_state: Path) -> Path:
    return write_config(tmp_path, CONFIG)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = [f"{i},{length},5" for i, length in enumerate(LENGTHS)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows, "x,1,1"]))
    return path


def test_a_configuration_is_planned_and_nothing_is_compiled(config: Path) -> None:
    ended = run_cli("bucket-report", config)
    assert ended.code == 0
    assert "compile time    4 graphs, unknown" in ended.stdout
    assert ended.stderr == f"next: neuron-llm bucket-report {config} --prompts file.jsonl\n"


def test_everything_fits_into_80_columns(config: Path, trace: Path) -> None:
    ended = run_cli("bucket-report", config, "--trace", trace, "--simulate")
    assert ended.code == 0
    own_lines = [line for line in ended.stdout.splitlines() if str(trace) not in line]
    assert max(map(len, own_lines)) <= 80
    for title in (
        "graphs",
        "recommendation: at most 2 prefill graphs, granularity 1",
        "simulation",
    ):
        assert title in own_lines


def test_what_is_left_out_is_counted_and_named(config: Path, trace: Path) -> None:
    ended = run_cli("bucket-report", config, "--trace", trace)
    words = " ".join(ended.stdout.split())
    assert "too long 1 prompt over `max_model_len` 256" in words
    assert "line 18 with 300" in words
    assert "bad rows 1: line 19: `arrival_s` is" in words
    assert "chunks 1 prompt of several chunks of 64 tokens, the longest of 2" in words


def test_json_and_csv_have_the_same_graphs(config: Path, trace: Path) -> None:
    document = run_cli("bucket-report", config, "--trace", trace, "--json").document
    rows = list(
        csv.DictReader(
            io.StringIO(run_cli("bucket-report", config, "--trace", trace, "--csv").stdout)
        )
    )
    assert [row["graph"] for row in rows] == [graph["graph"] for graph in document["graphs"]]
    assert rows[0]["num_uses"] == str(document["graphs"][0]["num_uses"])
    assert rows[2]["num_uses"] == ""
    assert document["prefill"]["recommended"]["num_batched_tokens_buckets"] == [20, 64]
    assert document["prefill"]["held_out"]["num_fitted"] == 8


def test_prompts_are_tokenised_with_the_models_template(llama: Compiled, empty_state: Path) -> None:
    lines = [{"messages": [{"role": "user", "content": "Hi"}]}, {"prompt_token_ids": [5] * 9}]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    flags = ("--prompts", "p.jsonl", "--json")
    of_config = run_cli("bucket-report", llama.config, *flags).document["workload"]
    of_artifact = run_cli("bucket-report", "--artifact", llama.artifact, *flags).document[
        "workload"
    ]
    assert of_config == of_artifact
    assert of_config["num_prompts"] == 2
    ran = run_cli("run", "--prompts", "p.jsonl", "--artifact", llama.artifact, "--max-tokens", 2)
    counted = sum(record["num_prompt_tokens"] for record in ran.records)
    assert of_config["prompt_lengths"]["num_tokens"] == counted


def test_the_recommendation_is_written_beside_the_comments(config: Path, trace: Path) -> None:
    ended = run_cli("bucket-report", config, "--trace", trace, "--write", "out.yaml")
    assert ended.code == 0
    assert ended.stderr.endswith("wrote out.yaml\nnext: neuron-llm compile out.yaml\n")
    text = Path("out.yaml").read_text()
    assert "num_batched_tokens_buckets: [20, 64]   # prefills" in text
    assert "# prompt and output" in text
    again = run_cli("bucket-report", config, "--trace", trace, "--write", "out.yaml")
    assert (again.code, again.stdout) == (1, "")
    assert again.stderr == (
        "error: `out.yaml` exists\n\nhint: name another file, or replace it with `--force`\n"
    )
    flags = ("--write", "out.yaml", "--force", "--simulate", "-q")
    assert run_cli("bucket-report", config, "--trace", trace, *flags).code == 0
    assert run_cli("bucket-report", "out.yaml").code == 0


def test_a_list_that_saves_nothing_is_written_only_when_asked_for(
    config: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "even.csv"
    rows = [f"{i},{16 if i % 2 else 64},1" for i in range(6)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    ended = run_cli("bucket-report", config, "--trace", trace, "--write", "out.yaml")
    assert ended.code == 1
    assert "error: nothing to write: " in ended.stderr
    assert "no saving" in ended.stdout
    flags = ("--write", "out.yaml", "--max-graphs", 1)
    forced = run_cli("bucket-report", config, "--trace", trace, *flags)
    assert forced.code == 0
    assert "warning: no saving: " in forced.stderr
    assert "num_batched_tokens_buckets: [64]" in Path("out.yaml").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--trace", "a", "--prompts", "b"], "`--prompts` and `--trace` exclude each other"),
        (["--json", "--csv"], "`--json` and `--csv` exclude each other"),
        (["--artifact", "a"], "CONFIG and `--artifact` exclude each other"),
        (["--force"], "`--force` has no effect without `--write`"),
        (["--template", "t", "--trace", "a"], "`--template` has no effect without `--prompts`"),
        (["--max-graphs", "0"], "Invalid value for '--max-graphs'"),
    ],
)
def test_flags_that_contradict_each_other_are_usage_errors(
    config: Path, flags: list[str], message: str
) -> None:
    ended = run_cli("bucket-report", config, *flags)
    assert (ended.code, ended.stdout) == (2, "")
    assert message in " ".join(ended.stderr.split())


def test_the_help_names_every_target() -> None:
    words = " ".join(run_cli("bucket-report", "-h").stdout.split())
    assert f"roofline: {', '.join(ROOFLINE_TARGETS)}." in words


def test_write_needs_a_configuration_and_a_workload(config: Path) -> None:
    assert run_cli("bucket-report", "--write", "out.yaml").code == 2
    ended = run_cli("bucket-report", config, "--write", "out.yaml")
    assert ended.code == 1
    assert "error: there is no workload to choose buckets for\n" in ended.stderr


def test_every_flag_of_the_recommendation_counts(config: Path, trace: Path) -> None:
    flags = ("--max-graphs", 3, "--granularity", 32, "--max-num-batched-tokens", 100)
    advice = run_cli("bucket-report", config, "--trace", trace, *flags, "--json").document[
        "prefill"
    ]
    assert (advice["max_graphs"], advice["granularity"], advice["max_chunk_tokens"]) == (3, 32, 100)
    # Prompts of 20, 40, 7 and 100.
    assert advice["recommended"]["num_batched_tokens_buckets"] == [32, 64, 100]


def test_unknown_outputs_are_those_that_are_asked_for(config: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,5\n1,20,\n")
    flags = ("--output-tokens", 9, "--json")
    workload = run_cli("bucket-report", config, "--trace", trace, *flags).document["workload"]
    assert (workload["assumed_output_tokens"], workload["num_assumed_outputs"]) == (9, 1)


@pytest.mark.parametrize("flags", [["--simulate"], ["--target", "trn2"], ["--target", "bogus"]])
def test_without_a_workload_there_is_nothing_to_time(config: Path, flags: list[str]) -> None:
    ended = run_cli("bucket-report", config, *flags)
    assert (ended.code, ended.stdout) == (1, "")
    assert "error: there is no workload to time or simulate\n" in ended.stderr


@pytest.mark.parametrize(
    ("path", "reason"), [(".", "is a directory"), ("a/b", "no such directory")]
)
def test_a_place_for_pictures_that_is_none_is_refused_before_any_work(
    config: Path, trace: Path, path: str, reason: str
) -> None:
    ended = run_cli("bucket-report", config, "--trace", trace, "--html", path)
    assert (ended.code, ended.stdout) == (1, "")
    assert f"error: cannot write `{path}`: {reason}\n" in ended.stderr


def test_pictures_never_replace_what_the_command_reads(config: Path, trace: Path) -> None:
    before = trace.read_text()
    ended = run_cli("bucket-report", config, "--trace", trace, "--html", trace)
    assert (ended.code, trace.read_text()) == (1, before)
    assert f"error: cannot write `{trace}`: another option names it too\n" in ended.stderr


def test_lengths_with_output_say_of_which_requests_they_are(config: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,5\n1,20,\n2,300,5\n")
    words = " ".join(run_cli("bucket-report", config, "--trace", trace).stdout.split())
    assert "with output of 1 that can run and say it, 25 tokens: p50 25" in words


def test_where_no_prompt_can_run_nothing_is_said_of_chunks(config: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{i},300,5\n" for i in range(5))
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    ended = run_cli("bucket-report", config, "--trace", trace)
    assert "warning: no prompt of the workload can run" in ended.stderr
    assert "\nchunks " not in ended.stdout
    words = " ".join(ended.stdout.split())
    assert "line 4 with 300; and 2 more (with --json)" in words
    written = run_cli("bucket-report", config, "--trace", trace, "--write", "out.yaml")
    assert written.code == 1
    assert "error: nothing to write: no prompt of the workload can run" in written.stderr


def test_pictures_are_one_file(config: Path, trace: Path) -> None:
    ended = run_cli("bucket-report", config, "--trace", trace, "--html", "report.html")
    assert ended.code == 0
    assert "wrote report.html\n" in ended.stderr
    assert Path("report.html").read_text().startswith("<!DOCTYPE html>")
