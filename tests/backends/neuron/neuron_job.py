"""The main job on the doubles: in processes of its own, or in this one, and what eager answers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Ended, run_cli
from neuron_doubles import environment_with_doubles, use_doubles
from tiny_models import load_reference, reference_tokens

from neuron_llm.backends.build import builds
from neuron_llm.backends.build.pool import BuildTask
from neuron_llm.backends.neuron.model_builder import shared_model
from neuron_llm.backends.protocol import BuildEvent, BuildListener
from neuron_llm.runtime.text.tokenizer import REPLACEMENT, Tokenizer

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
NUM_TOKENS = 6
PROMPTS = ["a", "Static shapes", "twenty-three characters and some more of them"]


def neuron_llm_process(*arguments: object, directory: Path) -> Ended:
    """Run `neuron-llm` in a process of its own that finds the doubles."""
    ended = subprocess.run(
        [sys.executable, "-m", "neuron_llm.cli.main", *map(str, arguments)],
        cwd=directory,
        env=environment_with_doubles(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def neuron_llm(*arguments: object, directory: Path, stdin: str = "") -> Ended:
    """Run `neuron-llm` on the doubles in this process, which builds the graphs too."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_doubles(monkeypatch)
        monkeypatch.setattr(builds, "build_all", build_all_here)
        monkeypatch.setattr(shared_model, "build_all", build_all_here)
        return neuron_llm_without_doubles(*arguments, directory=directory, stdin=stdin)


def neuron_llm_without_doubles(*arguments: object, directory: Path, stdin: str = "") -> Ended:
    """Run `neuron-llm` in this process, where AWS's packages are not installed."""
    with contextlib.chdir(directory):
        return run_cli(*arguments, stdin=stdin)


def build_all_here(
    tasks: Sequence[BuildTask], *, on_event: BuildListener, **_processes: object
) -> None:
    """Do what `build_all` does, without the processes: starting them takes longer than building."""
    for task in tasks:
        started = time.perf_counter()
        on_event(BuildEvent(task.graph, "started"))
        with task.log.open("w") as log, contextlib.redirect_stdout(log):
            task.target(*task.args)
        on_event(BuildEvent(task.graph, "built", time.perf_counter() - started))


@dataclass(frozen=True)
class EagerAnswer:
    """What eager Hugging Face answers to a prompt, greedily, the end of sequence ignored.

    Attributes:
        token_ids: of the answer.
        text: theirs, without what at the end is no whole character.
    """

    token_ids: list[int]
    text: str


def eager_answers(model: Path) -> list[EagerAnswer]:
    """Return the answer of a Hugging Face directory to each of the prompts."""
    reference, tokenizer = load_reference(model), Tokenizer.load(model)
    token_ids = [
        reference_tokens(reference, tokenizer.encode_prompt(prompt), NUM_TOKENS)
        for prompt in PROMPTS
    ]
    assert len({tuple(tokens) for tokens in token_ids}) == len(PROMPTS)
    return [
        EagerAnswer(tokens, tokenizer.decode(tokens).rstrip(REPLACEMENT)) for tokens in token_ids
    ]


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a prompts file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_records(path: Path) -> dict[str, Any]:
    """Return the records of an output file by the ids of their lines."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["id"]: record for record in records}
