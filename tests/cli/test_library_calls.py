"""A library call and its command do one thing: they give the same artifact and the same report."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from cli_runner import run_cli
from conftest import Compiled

from neuron_llm import (
    LLM,
    CompileOptions,
    ReportQuestion,
    build_report,
    compile_model,
    plan_model,
    run_batch_job,
)
from neuron_llm.artifact.latest import find_latest
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.backends.protocol import BuildEvent
from neuron_llm.errors import ArtifactError, ConfigError, NeuronLLMError


@pytest.fixture
def config(llama: Compiled, empty_state: Path) -> Path:
    return Path(shutil.copyfile(llama.config, "tiny.yaml"))


def test_compiling_gives_the_artifact_of_the_command(
    config: Path, compile_cache: Path, llama: Compiled
) -> None:
    events: list[BuildEvent] = []
    options = CompileOptions(cache_dir=compile_cache)
    result = compile_model(config, options, on_event=events.append)
    assert result.artifact == Path("artifacts/tiny") == find_latest(Path("artifacts"))
    assert result.manifest.artifact_id == read_manifest(llama.artifact).artifact_id
    assert result.plan.buckets == read_manifest(result.artifact).buckets
    assert {event.status for event in events} == {"cached", "verified"}
    again = run_cli("compile", config, "--cache-dir", compile_cache, "--json")
    assert again.document["artifact_id"] == result.manifest.artifact_id
    assert again.document["artifact"] == str(result.artifact)


def test_added_buckets_are_planned_and_every_fault_is_named(config: Path) -> None:
    planned = plan_model(config, added_buckets=["prefill:12"])
    assert planned.plan.buckets.num_batched_tokens_buckets == [8, 12, 16]
    dry = run_cli("compile", config, "--dry-run", "--json", "--add-bucket", "prefill:12")
    assert [g["graph"] for g in dry.document["graphs"]] == [
        b.name for b in planned.plan.buckets.all
    ]
    config.write_text(config.read_text() + "colour: red\nblock_sise: 4\n")
    with pytest.raises(ConfigError, match="2 faults") as caught:
        compile_model(config)
    assert len(caught.value.faults) == 2


def test_another_configurations_artifact_is_replaced_only_by_force(
    config: Path, compile_cache: Path
) -> None:
    options = CompileOptions(cache_dir=compile_cache, verify=False)
    compile_model(config, options)
    config.write_text(config.read_text() + "max_consecutive_prefills: 3\n")
    with pytest.raises(ArtifactError, match="`max_consecutive_prefills` differs"):
        compile_model(config, options)
    forced = CompileOptions(cache_dir=compile_cache, verify=False, force=True)
    assert compile_model(config, forced).manifest.settings.max_consecutive_prefills == 3


def test_a_report_is_the_document_of_the_command(config: Path, llama: Compiled) -> None:
    Path("trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,3\n1,14,2\n2,9,9\n")
    question = ReportQuestion(trace=Path("trace.csv"), max_graphs=2)
    flags = ("--trace", "trace.csv", "--max-graphs", 2, "--json")
    warnings: list[str] = []
    report = build_report(question, config=config, on_warning=warnings.append).to_json()
    ended = run_cli("bucket-report", config, *flags)
    assert ended.document == report and report["workload"] is not None
    assert all(warning in ended.stderr for warning in warnings)
    of_artifact = build_report(question, artifact=llama.artifact).to_json()
    ended = run_cli("bucket-report", "--artifact", llama.artifact, *flags)
    assert ended.document == of_artifact != report


def test_paths_may_be_texts(config: Path, compile_cache: Path, llama: Compiled) -> None:
    folders: dict[str, Any] = {"artifacts_dir": "out", "cache_dir": str(compile_cache)}
    options = CompileOptions(verify=False, **folders)
    assert compile_model(str(config), options).artifact == Path("out/tiny")
    Path("trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,3\n")
    given: dict[str, Any] = {"trace": "trace.csv"}
    assert build_report(ReportQuestion(**given), config=str(config)).workload is not None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        # With no process at a time nothing would ever be built, and nobody told.
        (lambda: CompileOptions(num_jobs=0), "`num_jobs` is 0, not an integer >= 1"),
        (lambda: CompileOptions(timeout_s=-1), "`timeout_s` is -1, not a number over 0"),
        (lambda: CompileOptions(cache_dir=cast(Any, None)), "`cache_dir` is of type `NoneType`"),
        (lambda: ReportQuestion(max_graphs=0), "`max_graphs` is 0, not an integer >= 1"),
        (lambda: ReportQuestion(granularity=-2), "`granularity` is -2, not an integer >= 1"),
        (lambda: ReportQuestion(max_chunk_tokens=-5), "`max_chunk_tokens` is -5"),
        (lambda: ReportQuestion(output_tokens=0), "`output_tokens` is 0"),
        (lambda: ReportQuestion(granularity=cast(Any, 2.5)), "`granularity` is of type `float`"),
        (lambda: ReportQuestion(prompts=Path("a"), trace=Path("b")), "exclude each other"),
        (lambda: ReportQuestion(chat_template="x"), "no effect without `prompts`"),
        (lambda: plan_model(cast(Any, 7)), "`config` is of type `int`, not a path"),
        (lambda: plan_model("tiny.yaml", added_buckets="prefill:0"), "`prefill:0` is no bucket"),
        (lambda: plan_model("tiny.yaml", added_buckets=cast(Any, [5])), "a text such as"),
        (lambda: compile_model("tiny.yaml", cast(Any, {})), "not `CompileOptions`"),
        (lambda: build_report(cast(Any, {}), config="tiny.yaml"), "not `ReportQuestion`"),
        (lambda: run_batch_job(cast(Any, {})), "not `BatchJob`"),
        (lambda: LLM(cast(Any, 7)), "`artifact` is of type `int`, not a path"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    call: Callable[[], object], said: str, config: Path
) -> None:
    with pytest.raises(NeuronLLMError, match=re.escape(said)):
        call()


def test_a_report_without_a_subject_is_on_the_latest_artifact(config: Path) -> None:
    with pytest.raises(ArtifactError, match="no artifact in `artifacts`"):
        build_report()
    with pytest.raises(NeuronLLMError, match="not on both"):
        build_report(config=config, artifact="artifacts/tiny")
