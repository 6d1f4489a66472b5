"""A batch job as a library user runs it: from file to file, and on where it was cut short."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import Compiled

from neuron_llm import BatchJob, SamplingParams, run_batch_job
from neuron_llm.artifact.manifest import Manifest, read_manifest
from neuron_llm.errors import NeuronLLMError, RequestError
from neuron_llm.report.run.last_run import read_last_run
from neuron_llm.runtime.batch.observer import BatchObserver, BatchProgress
from neuron_llm.runtime.batch.resume import FinishedRecords, identity_path
from neuron_llm.scheduler.step_record import StepRecord

LINES = [{"prompt": "x" * length, "max_tokens": 3} for length in (3, 20, 9)]
GREEDY = {"temperature": 0, "ignore_eos": True}


class Watched(BatchObserver):
    """Remembers what it was told, and can end the job after so many lines."""

    def __init__(self, *, num_lines: int | None = None) -> None:
        self.told: list[str] = []
        self.steps: list[StepRecord] = []
        self.num_lines = num_lines

    def on_resumed(self, num_records: int) -> None:
        self.told.append(f"resumed {num_records}")

    def on_loading(self) -> None:
        self.told.append("loading")

    def on_loaded(self, manifest: Manifest) -> None:
        self.told.append(f"loaded {manifest.name}")

    def on_step(self, step: StepRecord) -> None:
        self.steps.append(step)

    def on_progress(self, progress: BatchProgress) -> None:
        self.told.append(f"{progress.num_done} done")
        if progress.num_done == self.num_lines:
            raise KeyboardInterrupt


@pytest.fixture
def job(llama: Compiled, tmp_path: Path) -> BatchJob:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in (*LINES, {"prompt": 1})))
    output = tmp_path / "out.jsonl"
    return BatchJob(artifact=llama.artifact, prompts=prompts, output=output, sampling=GREEDY)


def texts(output: Path | None) -> list[str | None]:
    assert output is not None
    return [json.loads(line)["text"] for line in output.read_text().splitlines()]


def test_a_job_writes_a_record_for_each_line_and_tells_how_it_goes(job: BatchJob) -> None:
    watched = Watched()
    result = run_batch_job(job, watched)
    assert [text is None for text in texts(job.output)] == [False, False, False, True]
    assert (result.metrics.num_completed, result.num_failed) == (3, 1)
    assert watched.told[:2] == ["loading", "loaded tiny"]
    assert watched.told[2:] == [f"{done} done" for done in (1, 2, 3, 4)]
    document = result.to_json()
    assert document["num_output_tokens"] == 9 and "num_kv_copies" not in document
    prefilled = [step.num_tokens for step in watched.steps if hasattr(step.bucket, "num_tokens")]
    assert sum(prefilled) == document["num_prompt_tokens"] - document["num_cached_tokens"]
    assert result.warnings == () and result.earlier == FinishedRecords()


def test_a_job_that_was_cut_short_goes_on_with_the_first_line_that_has_no_record(
    job: BatchJob,
) -> None:
    run_batch_job(job)
    assert job.output is not None
    whole = texts(job.output)
    job.output.unlink()
    with pytest.raises(KeyboardInterrupt):
        run_batch_job(job, Watched(num_lines=2))
    num_written = len(texts(job.output))
    assert identity_path(job.output).exists()
    with pytest.raises(NeuronLLMError, match=r"`.*out\.jsonl` exists already"):
        run_batch_job(job)
    with pytest.raises(NeuronLLMError, match=r"is of another job: `temperature` is 1, and was 0"):
        run_batch_job(replace(job, existing_output="resume", sampling={**GREEDY, "temperature": 1}))
    watched = Watched()
    result = run_batch_job(replace(job, existing_output="resume"), watched)
    assert watched.told[0] == f"resumed {result.earlier.num_records}"
    assert 0 < result.earlier.num_records <= num_written
    assert texts(job.output) == whole
    assert result.num_failed == 1 and not identity_path(job.output).exists()


def test_a_job_keeps_a_log_only_where_it_is_told_to(
    job: BatchJob, tmp_path: Path, empty_state: Path
) -> None:
    manifest = read_manifest(job.artifact)
    run_batch_job(job)
    assert not (empty_state / ".neuron-llm").exists()
    watched, state = Watched(), tmp_path / "state"
    run_batch_job(replace(job, existing_output="replace", state_dir=state), watched)
    run = read_last_run(manifest.artifact_id, manifest.buckets, state)
    assert run is not None and run.account.total.num_uses == len(watched.steps) > 0


@pytest.mark.parametrize("sampling", [{"stop": ("zz", "qq")}, {"logit_bias": {5: 1.0}}])
def test_a_job_goes_on_whatever_its_fields_are_made_of(
    job: BatchJob, sampling: dict[str, object]
) -> None:
    """A tuple and a key that is a number are read as something else than what was written."""
    asked = replace(job, sampling={**GREEDY, **sampling})
    with pytest.raises(KeyboardInterrupt):
        run_batch_job(asked, Watched(num_lines=3))
    assert run_batch_job(replace(asked, existing_output="resume")).earlier.num_records > 0


def test_paths_may_be_texts(job: BatchJob, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "artifact": str(job.artifact),
        "prompts": str(job.prompts),
        "output": str(job.output),
        "trace_out": str(tmp_path / "trace.json"),
        "state_dir": str(tmp_path / "state"),
    }
    run_batch_job(BatchJob(**given))
    assert len(texts(job.output)) == 4
    assert json.loads((tmp_path / "trace.json").read_text())
    assert len(list((tmp_path / "state").rglob("last_run.jsonl"))) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"existing_output": "resumed"}, "is 'resumed', not one of `refuse`, `replace`, `resume`"),
        ({"existing_output": "resume", "output": None}, "whose records go to stdout"),
        ({"sampling": SamplingParams()}, "`sampling` is of type `SamplingParams`, not fields"),
        ({"prompts": None}, "`prompts` is of type `NoneType`, not a path"),
        ({"artifact": 7}, "`artifact` is of type `int`, not a path"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(
    job: BatchJob, given: dict[str, Any], said: str
) -> None:
    """A misspelt `resume` would replace the file: there is nothing that it could be."""
    with pytest.raises(NeuronLLMError, match=re.escape(said)):
        replace(job, **given)


def test_records_are_not_lost_where_stdout_takes_none(job: BatchJob) -> None:
    with redirect_stdout(StringIO()), pytest.raises(NeuronLLMError, match="no records here"):
        run_batch_job(replace(job, output=None))


def test_a_log_that_cannot_be_written_is_a_warning(job: BatchJob, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    result = run_batch_job(replace(job, state_dir=tmp_path / "state"))
    (warning,) = result.warnings
    assert "`bucket-report` will not show this run" in warning
    assert len(texts(job.output)) == 4


def test_sampling_fields_of_a_job_are_refused_before_anything_is_opened(job: BatchJob) -> None:
    with pytest.raises(RequestError, match="temperature"):
        run_batch_job(replace(job, sampling={"temperature": -1}))
    assert job.output is not None and not job.output.exists()
