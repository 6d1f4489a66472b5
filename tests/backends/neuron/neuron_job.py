"""The main job in processes that find the doubles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from neuron_doubles import environment_with_doubles

CONFIG = """\
model: {model}
backend: neuron
dtype: float32
max_model_len: 64
max_num_seqs: 2
max_num_batched_tokens: 16
block_size: 4
neuron_config:
  target: trn2
  num_batched_tokens_buckets: [16]
  num_seqs_buckets: [2]
  kv_segment_size_buckets: [16]
  binding: trace
"""


def neuron_llm(
    *arguments: str | Path, directory: Path, with_doubles: bool = True, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `neuron-llm` with the arguments in a process of its own."""
    environment = environment_with_doubles() if with_doubles else None
    return subprocess.run(
        [sys.executable, "-m", "neuron_llm.cli.main", *map(str, arguments)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        input=stdin,
        check=False,
    )


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a prompts file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_records(path: Path) -> dict[str, Any]:
    """Return the records of an output file by the ids of their lines."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["id"]: record for record in records}
