"""A batch job, from a prompts file to an output file, and what it came to. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from neuron_llm.artifact.arguments import check_choice, check_type, make_paths
from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.metrics import RunMetrics
from neuron_llm.runtime.batch.resume import FinishedRecords
from neuron_llm.runtime.engine.options import DEFAULT_OPTIONS, EngineOptions

ExistingOutput = Literal["refuse", "replace", "resume"]
"""What becomes of an output file that is there: an error, a new file, or the rest of its job."""


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """What to run.

    Attributes:
        artifact: directory of the artifact.
        prompts: the prompts file, JSON lines; a pipe will do.
        output: where records go, a JSON line each; None is stdout.
        existing_output: what becomes of an output file that is there.
        sampling: sampling fields for every line. A line's own win over them, and they over the
            model's `generation_config.json`.
        include_token_ids: write `token_ids` into the records.
        chat_template: a Jinja template that replaces the model's, for `messages`.
        engine_options: how the artifact is served.
        trace_out: where to write a Chrome trace of every step; None for none.
        state_dir: where the log of the artifact's last run is kept, see `last_run_path`; None for
            no log.
    """

    artifact: Path
    prompts: Path
    output: Path | None = None
    existing_output: ExistingOutput = "refuse"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    include_token_ids: bool = False
    chat_template: str | None = None
    engine_options: EngineOptions = DEFAULT_OPTIONS
    trace_out: Path | None = None
    state_dir: Path | None = None

    def __post_init__(self) -> None:
        """Take texts for paths, and refuse what would be taken for something else.

        Raises:
            NeuronLLMError: names the attribute.
        """
        make_paths(self)
        check_choice(self.existing_output, "existing_output", get_args(ExistingOutput))
        if self.existing_output == "resume" and self.output is None:
            raise NeuronLLMError("no job can go on whose records go to stdout; give an `output`")
        check_type(self.sampling, "sampling", Mapping, 'fields such as `{"temperature": 0}`')
        check_type(self.engine_options, "engine_options", EngineOptions)

    @property
    def can_go_on(self) -> bool:
        """Whether the job can go on where it was cut short: its files can be read again."""
        return self.output is not None and self.prompts.is_file()


@dataclass(frozen=True, kw_only=True)
class BatchJobResult:
    """What a job came to.

    Attributes:
        earlier: the records that an earlier run of the job had left.
        metrics: latencies and throughput of the lines that this run did.
        duration_s: wall time of this run, without loading.
        num_kv_copies: times that a whole KV cache moved between graphs; None where none can.
        kv_copy_bytes: bytes that moved; None likewise.
        warnings: what is not as meant, a sentence each.
    """

    earlier: FinishedRecords
    metrics: RunMetrics
    duration_s: float
    num_kv_copies: int | None
    kv_copy_bytes: int | None
    warnings: tuple[str, ...]

    @property
    def num_failed(self) -> int:
        """Lines of the whole job whose record is an error."""
        return self.earlier.num_failed + self.metrics.num_failed

    def to_json(self) -> dict[str, Any]:
        """Return latencies and throughput of this run as JSON keys and values."""
        moved = {"num_kv_copies": self.num_kv_copies, "kv_copy_bytes": self.kv_copy_bytes}
        return self.metrics.to_json(self.duration_s) | {
            name: value for name, value in moved.items() if value is not None
        }
