"""From a question to a whole report. Knows no torch; prompts are counted by transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_llm.artifact.arguments import as_path, check_counts, check_type, make_paths
from neuron_llm.artifact.latest import ARTIFACTS_DIR, find_latest
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.compile.planned_model import plan_model
from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.advice.chunk_size import candidate_chunk_sizes
from neuron_llm.report.advice.prefill_advice import PrefillAdvice, PrefillQuestion, advise_prefill
from neuron_llm.report.bucket_report import BucketReport
from neuron_llm.report.bucket_usage import BucketUsage
from neuron_llm.report.report_workload import (
    ReportWorkload,
    WorkloadSource,
    workload_of_run,
    workload_of_trace,
)
from neuron_llm.report.run.last_run import LastRun, read_last_run
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.static_report import static_report
from neuron_llm.report.subject import ReportSubject, subject_of_artifact, subject_of_config
from neuron_llm.report.timing import Timing, choose_price, choose_timing
from neuron_llm.report.workload.trace import Trace
from neuron_llm.report.workload.trace_reader import read_trace
from neuron_llm.runtime.run_log import STATE_DIR

if TYPE_CHECKING:
    from neuron_llm.report.what_if import WhatIf


@dataclass(frozen=True, kw_only=True)
class ReportQuestion:
    """What is asked; all of it may be left out.

    Attributes:
        prompts: a prompts file, the workload.
        trace: a trace file, the workload; at most one of the two.
        chat_template: a Jinja template that replaces the model's.
        max_graphs: most prefill graphs to recommend; None for as many as there are.
        granularity: every recommended bucket but the last is a multiple of it.
        max_chunk_tokens: the largest chunk to recommend buckets for; None for what is configured.
        output_tokens: of each request whose output is not known; None to assume some.
        is_simulated: whether configurations are simulated.
        target: the device whose step times count; None for measured ones if there are any.
    """

    prompts: Path | None = None
    trace: Path | None = None
    chat_template: str | None = None
    max_graphs: int | None = None
    granularity: int = 1
    max_chunk_tokens: int | None = None
    output_tokens: int | None = None
    is_simulated: bool = False
    target: str | None = None

    def __post_init__(self) -> None:
        """Take texts for paths, and refuse what no report can answer.

        Raises:
            NeuronLLMError: names the attribute.
        """
        make_paths(self)
        check_type(self.granularity, "granularity", int)
        check_counts(self, "max_graphs", "granularity", "max_chunk_tokens", "output_tokens")
        if self.prompts is not None and self.trace is not None:
            raise NeuronLLMError("`prompts` and `trace` exclude each other")
        if self.chat_template is not None and self.prompts is None:
            raise NeuronLLMError("`chat_template` has no effect without `prompts`")


def build_report(
    question: ReportQuestion | None = None,
    *,
    config: str | Path | None = None,
    artifact: str | Path | None = None,
    state_dir: str | Path = STATE_DIR,
    on_progress: Callable[[str], None] = lambda text: None,
    on_warning: Callable[[str], None] = lambda text: None,
) -> BucketReport:
    """Return what padding costs, and which buckets would cost least.

    Args:
        question: what is asked beside the graphs themselves; None for nothing.
        config: a configuration file, which is only planned.
        artifact: a directory that `compile` wrote; without it and `config`, the latest in
            `./artifacts`.
        state_dir: where the log of the artifact's last run lies, its workload if `question` names
            none.
        on_progress: told what takes time, before it does.
        on_warning: told what is not as meant.

    Raises:
        ConfigError: the configuration has faults.
        ArtifactError: there is no artifact, or it is damaged.
        NeuronLLMError: both were given, or see `ReportBuilder.build`.
    """
    if config is not None and artifact is not None:
        raise NeuronLLMError("a report is on a configuration or on an artifact, not on both")
    question = ReportQuestion() if question is None else question
    check_type(question, "question", ReportQuestion)
    run: LastRun | None = None
    if config is not None:
        planned = plan_model(config, on_progress=on_progress)
        for warning in planned.plan.warnings:
            on_warning(warning)
        subject = subject_of_config(planned, ARTIFACTS_DIR)
    else:
        directory = (
            find_latest(ARTIFACTS_DIR) if artifact is None else as_path(artifact, "artifact")
        )
        manifest = read_manifest(directory)
        subject = subject_of_artifact(directory, manifest)
        run = read_last_run(manifest.artifact_id, manifest.buckets, as_path(state_dir, "state_dir"))
        if run is not None:
            on_progress(_described(run))
    return ReportBuilder(subject, run, on_progress, on_warning).build(question)


def _described(run: LastRun) -> str:
    started = datetime.fromisoformat(run.header.started_at)
    num_steps = run.account.total.num_uses
    noun = "step" if num_steps == 1 else "steps"
    return f"last run here: {started:%Y-%m-%d %H:%M:%S}, {num_steps} {noun}"


class ReportBuilder:
    """Builds a report.

    Args:
        subject: whose graphs it is about.
        last_run: of the subject; None if there was none.
        on_progress: told what takes time, before it does.
        on_warning: told what is not as meant.
    """

    def __init__(
        self,
        subject: ReportSubject,
        last_run: LastRun | None,
        on_progress: Callable[[str], None] = lambda text: None,
        on_warning: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._subject, self._last_run = subject, last_run
        self._on_progress, self._on_warning = on_progress, on_warning

    def build(self, question: ReportQuestion) -> BucketReport:
        """Return the report.

        Raises:
            NeuronLLMError: the workload cannot be read, there is none to simulate, or nobody can
                say what steps take.
        """
        subject, run = self._subject, self._last_run
        static = static_report(subject)
        workload = self._workload(question)
        if workload is None:
            if question.is_simulated or question.target is not None:
                raise NeuronLLMError(
                    "there is no workload to time or simulate",
                    hint="give one with `--prompts FILE` or `--trace FILE`",
                )
            return BucketReport(subject=subject, static=static)
        if not workload.trace.requests:
            # The graphs may have been used all the same, as by prompts that were scored.
            is_of_run = workload.source is WorkloadSource.LAST_RUN
            usage = BucketUsage.of_run(run.account) if run is not None and is_of_run else None
            return BucketReport(
                subject=subject, static=static, last_run=run, workload=workload, usage=usage
            )
        timing = self._timing(question, workload)
        prefill = self._advise(question, workload, timing if question.target else None)
        what_if = None
        if question.is_simulated:
            assert timing is not None
            what_if = self._simulate(workload, prefill, timing)
        return BucketReport(
            subject=subject,
            static=static,
            last_run=run,
            workload=workload,
            usage=self._usage(workload, prefill, what_if),
            prefill=prefill,
            what_if=what_if,
            timing=None if timing is None else timing.description,
        )

    def _workload(self, question: ReportQuestion) -> ReportWorkload | None:
        plan, assumed = self._subject.plan, question.output_tokens
        if question.trace is not None:
            trace, path = read_trace(question.trace), question.trace
            return workload_of_trace(trace, plan, WorkloadSource.TRACE, str(path), assumed)
        if question.prompts is not None:
            trace, path = self._read_prompts(question.prompts, question), question.prompts
            return workload_of_trace(trace, plan, WorkloadSource.PROMPTS, str(path), assumed)
        if self._last_run is None:
            return None
        return workload_of_run(
            self._last_run.prompts, plan, self._last_run.header.started_at, assumed
        )

    def _read_prompts(self, path: Path, question: ReportQuestion) -> Trace:
        from neuron_llm.report.workload.prompt_trace import read_prompt_trace
        from neuron_llm.runtime.text.tokenizer import Tokenizer

        if self._subject.tokenizer_dir is None:
            raise NeuronLLMError(
                "the tokenizer of a GGUF file is known only once it is compiled",
                hint="compile the configuration and report on it with `--artifact DIR`",
            )
        self._on_progress(f"counting the tokens of {path}")
        tokenizer = Tokenizer.load(self._subject.tokenizer_dir)
        read = read_prompt_trace(
            path,
            tokenizer,
            block_size=self._subject.plan.block_size,
            vocab_size=self._subject.plan.model.vocab_size,
            chat_template=question.chat_template,
        )
        for warning in read.warnings:
            self._on_warning(warning)
        return read.trace

    def _timing(self, question: ReportQuestion, workload: ReportWorkload) -> Timing | None:
        if not question.is_simulated and question.target is None:
            return None
        live = workload.simulated.mean_context_tokens
        return choose_timing(
            self._subject, self._last_run, target=question.target, live_context_tokens=live
        )

    def _advise(
        self, question: ReportQuestion, workload: ReportWorkload, timing: Timing | None
    ) -> PrefillAdvice:
        plan = self._subject.plan
        chunk = min(question.max_chunk_tokens or plan.max_num_batched_tokens, plan.max_model_len)
        sizes = candidate_chunk_sizes(
            workload.lengths, current=chunk, max_model_len=plan.max_model_len
        )
        return advise_prefill(
            workload,
            PrefillQuestion(
                current=plan.buckets.num_batched_tokens_buckets,
                max_model_len=plan.max_model_len,
                max_chunk_tokens=chunk,
                max_graphs=question.max_graphs,
                granularity=question.granularity,
                price=choose_price(self._last_run, timing, sizes),
            ),
        )

    def _simulate(self, workload: ReportWorkload, prefill: PrefillAdvice, timing: Timing) -> WhatIf:
        from neuron_llm.report.what_if import CURRENT, compare_what_if

        plan = self._subject.plan
        num = len(workload.trace.requests)
        return compare_what_if(
            workload.simulated,
            Candidate.of(CURRENT, plan, plan.buckets),
            prefill,
            timing.step_times,
            lambda name: self._on_progress(f"simulating {num} requests, {name} graphs"),
        )

    def _usage(
        self, workload: ReportWorkload, prefill: PrefillAdvice, what_if: WhatIf | None
    ) -> BucketUsage:
        if workload.source is WorkloadSource.LAST_RUN:
            assert self._last_run is not None
            return BucketUsage.of_run(self._last_run.account)
        if what_if is not None:
            return BucketUsage.of_simulation(what_if.current.account)
        return BucketUsage.of_prefills(prefill.current, self._subject.plan.buckets)
