"""Subjects and workloads for tests of whole reports: a tiny model's configuration, no artifact."""

from __future__ import annotations

from pathlib import Path

from config_factory import write_config

from neuron_llm.compile.planned_model import plan_model
from neuron_llm.report.subject import ReportSubject, subject_of_config

CONFIG = """\
max_model_len: 256
max_num_seqs: 4
max_num_batched_tokens: 64
block_size: 4
neuron_config:
  num_batched_tokens_buckets: [16, 64]
  num_seqs_buckets: [1, 4]
"""
HEADER = "arrival_s,prompt_tokens,output_tokens"


def make_subject(directory: Path, text: str = CONFIG) -> ReportSubject:
    planned = plan_model(write_config(directory, text))
    return subject_of_config(planned, directory / "artifacts")


def write_rows(path: Path, *rows: str) -> Path:
    """Write a trace of our own columns."""
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def write_lengths(path: Path, *lengths: int, output_tokens: int = 3) -> Path:
    """Write a trace of prompts that come a second after one another."""
    return write_rows(path, *(f"{i},{n},{output_tokens}" for i, n in enumerate(lengths)))
