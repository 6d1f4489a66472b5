"""Compile and deploy large language models on hardware that runs only static shapes.

What the command line has, as a library (docs/python.md). Each name is imported when it is first
used, so that the command line starts without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neuron_llm.version import __version__

if TYPE_CHECKING:
    from neuron_llm.compile.compiler import compile_model
    from neuron_llm.compile.options import CompileOptions
    from neuron_llm.compile.planned_model import plan_model
    from neuron_llm.report.report_builder import ReportQuestion, build_report
    from neuron_llm.runtime.batch.job import BatchJob
    from neuron_llm.runtime.batch.job_run import run_batch_job
    from neuron_llm.runtime.llm import LLM
    from neuron_llm.runtime.sampling.sampling_params import SamplingParams

__all__ = [
    "LLM",
    "BatchJob",
    "CompileOptions",
    "ReportQuestion",
    "SamplingParams",
    "__version__",
    "build_report",
    "compile_model",
    "plan_model",
    "run_batch_job",
]

_HOMES = {
    "LLM": "runtime.llm",
    "BatchJob": "runtime.batch.job",
    "CompileOptions": "compile.options",
    "ReportQuestion": "report.report_builder",
    "SamplingParams": "runtime.sampling.sampling_params",
    "build_report": "report.report_builder",
    "compile_model": "compile.compiler",
    "plan_model": "compile.planned_model",
    "run_batch_job": "runtime.batch.job_run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
