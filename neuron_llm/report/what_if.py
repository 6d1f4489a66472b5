"""Configurations side by side: the one that is there, the default one, and a recommended one.

A recommendation is simulated before it is made. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuron_llm.report.advice.decode_buckets import (
    DecodeBucketLimits,
    DecodeRecommendation,
    recommend_decode_buckets,
)
from neuron_llm.report.advice.decode_choice import DecodeBucketChoice
from neuron_llm.report.advice.prefill_advice import PrefillAdvice
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.simulate.simulation import Simulation
from neuron_llm.report.simulate.simulator import simulate
from neuron_llm.report.step_time.step_times import StepTimes
from neuron_llm.report.workload.workload import Workload
from neuron_llm.scheduler.buckets import get_default_num_seqs_buckets

CURRENT, DEFAULT, RECOMMENDED = "current", "default", "recommended"


@dataclass(frozen=True)
class WhatIf:
    """What simulations of a workload came to.

    Attributes:
        current: the configured graphs.
        default: the default lists of the same limits, without context buckets.
        recommended: the recommended prefill buckets, together with `decode_choice` if that is
            advised, and otherwise with the configured decode graphs.
        decode: the decode graphs found from what `current` decoded.
        is_decode_advised: whether `decode_choice` is part of `recommended`: simulated with it, the
            graphs take less time than those of `current`.
    """

    current: Simulation
    default: Simulation
    recommended: Simulation
    decode: DecodeRecommendation
    is_decode_advised: bool

    @property
    def simulations(self) -> tuple[Simulation, ...]:
        """All three, side by side."""
        return (self.current, self.default, self.recommended)

    @property
    def decode_choice(self) -> DecodeBucketChoice:
        """The fewest decode graphs that take hardly longer than the best."""
        return self.decode.knee

    @property
    def saved_share(self) -> float | None:
        """The share of the graphs' time that the recommendation saves; None unless it saves any."""
        before, after = (s.account.total.seconds for s in (self.current, self.recommended))
        return (before - after) / before if after < before else None

    def to_json(self) -> dict[str, Any]:
        """Return simulations and decode graphs as JSON keys and values."""
        return {
            "saved_share": self.saved_share,
            "is_decode_advised": self.is_decode_advised,
            "decode": self.decode.to_json(),
            "simulations": [simulation.to_json() for simulation in self.simulations],
        }


def compare_what_if(
    workload: Workload,
    current: Candidate,
    prefill: PrefillAdvice,
    step_times: StepTimes,
    on_simulation: Callable[[str], None] = lambda name: None,
) -> WhatIf:
    """Simulate the configured graphs, the default ones and those recommended.

    Args:
        workload: the requests.
        current: the configuration.
        prefill: what is recommended of prefills.
        step_times: what a step of each graph takes.
        on_simulation: told of each simulation before it begins.

    Raises:
        NeuronLLMError: see `simulate`.
    """

    def run(candidate: Candidate) -> Simulation:
        on_simulation(candidate.name)
        return simulate(workload, candidate, step_times)

    first = run(current)
    default = run(
        current.with_buckets(
            DEFAULT,
            num_batched_tokens_buckets=prefill.default.buckets,
            num_seqs_buckets=get_default_num_seqs_buckets(current.scheduler.max_num_seqs),
            decode_context_length_buckets=(),
        )
    )
    limits = DecodeBucketLimits(
        max_num_seqs=current.scheduler.max_num_seqs,
        max_model_len=current.scheduler.max_model_len,
        max_graphs=len(current.buckets.decode),
    )
    decode = recommend_decode_buckets(first.occupancy, limits, step_times)
    both = run(_with_decodes(_with_prefills(current, prefill), decode.knee))
    is_advised = both.account.total.seconds < first.account.total.seconds
    recommended = both if is_advised else run(_with_prefills(current, prefill))
    return WhatIf(first, default, recommended, decode, is_advised)


def _with_prefills(current: Candidate, prefill: PrefillAdvice) -> Candidate:
    sizes = prefill.recommended.buckets if prefill.is_saving else None
    return current.with_buckets(RECOMMENDED, num_batched_tokens_buckets=sizes)


def _with_decodes(candidate: Candidate, choice: DecodeBucketChoice) -> Candidate:
    return candidate.with_buckets(
        RECOMMENDED,
        num_seqs_buckets=choice.num_seqs_buckets,
        decode_context_length_buckets=choice.decode_context_length_buckets,
    )
