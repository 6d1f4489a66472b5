"""How much CPU time whole reports take, as a shell sees it, start and pictures included."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from config_factory import write_config, write_model

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_buckets
from neuron_llm.report.workload.length_histogram import LengthHistogram

LONGEST = 60_000
NUM_ROWS = 30_000
NUM_SIMULATED = 10_000
MAX_REPORT_S = 5.0
MAX_OPTIMIZER_S = 1.0
MAX_SIMULATION_S = 60.0
CONFIG = """\
max_model_len: 65536
max_num_seqs: 8
max_num_batched_tokens: 2048
block_size: 32
enable_prefix_caching: false
"""

pytestmark = pytest.mark.prove


def distinct_lengths(num: int, longest: int) -> list[int]:
    """Return the worst lengths of their number: no two are equal."""
    return random.Random(0).sample(range(1, longest + 1), num)


def cpu_seconds(directory: Path, lengths: list[int], *flags: str) -> float:
    """Return what a report on a trace takes, ten requests a second."""
    write_model(directory / "model", max_position_embeddings=65536)
    config = write_config(directory, CONFIG)
    rows = (f"{i / 10},{length},{1 + length % 300}" for i, length in enumerate(lengths))
    trace = directory / "trace.csv"
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    command = [sys.executable, "-m", "neuron_llm.cli.main", "bucket-report", str(config)]
    html = directory / "report.html"
    before = os.times()
    subprocess.run(
        [*command, "--trace", str(trace), "--html", str(html), *flags],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = os.times()
    assert html.is_file()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system


def test_eight_buckets_for_30_000_lengths_take_less_than_a_second() -> None:
    lengths = LengthHistogram.of(distinct_lengths(NUM_ROWS, LONGEST))
    before = time.process_time()
    assert len(optimal_buckets(lengths, BucketLimits(LONGEST, 8))) == 8
    assert time.process_time() - before < MAX_OPTIMIZER_S


def test_a_whole_report_of_30_000_rows_takes_less_than_five_seconds(tmp_path: Path) -> None:
    assert cpu_seconds(tmp_path, distinct_lengths(NUM_ROWS, LONGEST)) < MAX_REPORT_S


def test_three_simulations_of_10_000_requests_take_less_than_a_minute(tmp_path: Path) -> None:
    # As short as chats: on average 1,200 tokens, and 150 of output.
    lengths = [1 + length % 2400 for length in distinct_lengths(NUM_SIMULATED, LONGEST)]
    flags = ("--simulate", "--target", "trn2")
    assert cpu_seconds(tmp_path, lengths, *flags) < MAX_SIMULATION_S
