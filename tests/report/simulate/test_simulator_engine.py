"""The simulator against the engine: the same requests give the same steps, graph by graph."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import Compiled
from engine_streams import async_copy
from simulation_factory import TokenTimes

from neuron_llm import SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.simulate.simulator import simulate
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.report.workload.workload import Workload
from neuron_llm.runtime.engine.async_engine import AsyncEngine
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.scheduler.step_record import StepRecord

PROMPT_IDS = range(128)
# No output has an id that a prompt may have, so that no prompt begins like an answer.
NO_PROMPT_ID = dict.fromkeys(PROMPT_IDS, -100.0)
TIMES = TokenTimes()


@dataclass(frozen=True)
class Sent:
    """A request for the engine."""

    arrival_s: float
    prompt: tuple[int, ...]
    max_tokens: int


@pytest.fixture(scope="module")
def sync_engine(llama: Compiled) -> Engine:
    return Engine(Artifact.open(llama.artifact))


@pytest.fixture(scope="module")
def async_engine(llama: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    artifact = async_copy(llama.artifact, tmp_path_factory.mktemp("async") / "tiny")
    return AsyncEngine(Artifact.open(artifact))


@pytest.fixture(params=["sync", "async"])
def engine(request: pytest.FixtureRequest) -> Engine:
    loaded: Engine = request.getfixturevalue(f"{request.param}_engine")
    return loaded


@pytest.fixture(scope="module")
def context_engine(qwen3: Compiled) -> Engine:
    return Engine(Artifact.open(qwen3.artifact))


def configure(engine: Engine, **changes: Any) -> Candidate:
    """Give the engine a new scheduler with other limits; return the same as a candidate."""
    manifest = engine.artifact.manifest
    plain = Candidate.of("tiny", manifest.settings, manifest.buckets)
    sizes = changes.pop("num_batched_tokens_buckets", None)
    plain = plain.with_buckets("tiny", num_batched_tokens_buckets=sizes)
    candidate = replace(plain, scheduler=replace(plain.scheduler, **changes))
    engine.requests.scheduler = engine.scheduler_class(candidate.scheduler)
    engine.runner.forget_requests()
    return candidate


def random_requests(seed: int, max_model_len: int, *, spread_s: float) -> list[Sent]:
    """Return requests that crowd a small engine, many of which begin like another one."""
    rng = random.Random(seed)
    requests: list[Sent] = []
    arrival_s = 0.0
    for _ in range(rng.randint(4, 14)):
        base = rng.choice([(), *(r.prompt for r in requests)])
        base = base[: rng.choice([len(base), rng.randint(0, len(base))])]
        new = rng.choices(PROMPT_IDS, k=rng.choice([1, 4, 9, rng.randint(1, max_model_len - 4)]))
        prompt = (*base, *new)[: max_model_len - 1]
        requests.append(Sent(arrival_s, prompt, rng.choice([1, 2, 7, 20, 70])))
        arrival_s += rng.choice([0.0, 0.0, rng.randrange(32) / 16]) * spread_s
    return requests


def traced(requests: list[Sent], num_output_tokens: list[int]) -> Trace:
    """Return the trace of these requests, in blocks of one token: it says all that is shared."""
    numbers, ids = count(), dict[tuple[int, ...], int]()
    lines = []
    for line, (request, output_tokens) in enumerate(zip(requests, num_output_tokens, strict=True)):
        prefixes = [request.prompt[:end] for end in range(1, len(request.prompt) + 1)]
        for prefix in prefixes:
            if prefix not in ids:
                ids[prefix] = next(numbers)
        hash_ids = tuple(ids[prefix] for prefix in prefixes)
        lines.append(TraceRequest(request.arrival_s, len(prefixes), output_tokens, hash_ids, line))
    return Trace("engine", tuple(lines), (), 1, 0)


def run_engine(
    engine: Engine, requests: list[Sent], **sampling: Any
) -> tuple[list[StepRecord], list[int]]:
    """Run requests that come on a clock on which a step takes what `TokenTimes` says.

    Returns:
        The steps, and how many tokens each request got.
    """
    steps: list[StepRecord] = []
    engine.on_step = steps.append
    num_output_tokens = [0] * len(requests)
    pending, now_s = list(enumerate(requests)), 0.0
    while pending or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            now_s = max(now_s, pending[0][1].arrival_s)
        while pending and pending[0][1].arrival_s <= now_s:
            index, request = pending.pop(0)
            params = SamplingParams(
                temperature=0,
                max_tokens=request.max_tokens,
                logit_bias=NO_PROMPT_ID,
                ignore_eos=True,
                **sampling,
            )
            engine.add_request(str(index), request.prompt, params)
        num_before = len(steps)
        for output in engine.step():
            if output.result is not None:
                (completion,) = output.result.outputs
                num_output_tokens[int(output.request_id)] = len(completion.token_ids)
        now_s += sum(TIMES.step_time(step.bucket).seconds for step in steps[num_before:])
    return steps, num_output_tokens


def simulated_steps(workload: Workload, candidate: Candidate) -> list[StepRecord]:
    steps: list[StepRecord] = []
    simulate(workload, candidate, TIMES, steps.append)
    return steps


def shapes(steps: list[StepRecord]) -> list[StepRecord]:
    return [replace(step, seconds=0.0, queue_seconds=None) for step in steps]


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no prefix caching": {"enable_prefix_caching": False},
    "two at a time": {"max_num_seqs": 2},
    "few blocks": {"num_blocks": 24},
    "few blocks, by length": {"num_blocks": 40, "kv_admission": "max_model_len"},
    "one prefill in a row": {"max_consecutive_prefills": 1},
    "small chunks": {"num_batched_tokens_buckets": (8,)},
}


@pytest.mark.parametrize("changes", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
@pytest.mark.parametrize("spread_s", [0.0, 4.0])
def test_simulated_steps_are_the_engines(
    engine: Engine, changes: dict[str, Any], spread_s: float
) -> None:
    num_cached = num_chunked = 0
    for seed in range(3):
        candidate = configure(engine, **changes)
        requests = random_requests(seed, 64, spread_s=spread_s)
        real, num_output_tokens = run_engine(engine, requests)
        workload = Workload(traced(requests, num_output_tokens))
        assert shapes(simulated_steps(workload, candidate)) == shapes(real)
        num_cached += sum(step.num_cached_tokens for step in real)
        num_chunked += sum(len(request.prompt) > 16 for request in requests)
    assert num_chunked
    assert bool(num_cached) == changes.get("enable_prefix_caching", True)


def test_simulated_steps_are_the_engines_where_stop_tokens_end_requests(engine: Engine) -> None:
    num_stopped = 0
    for seed in range(4):
        candidate = configure(engine)
        requests = [
            replace(request, max_tokens=20) for request in random_requests(seed, 43, spread_s=2.0)
        ]
        stops = random.Random(seed).sample(range(128, 256), 24)
        real, num_output_tokens = run_engine(engine, requests, stop_token_ids=stops)
        workload = Workload(traced(requests, num_output_tokens), max_tokens=20)
        assert shapes(simulated_steps(workload, candidate)) == shapes(real)
        num_stopped += sum(1 < num < 20 for num in num_output_tokens)
    assert num_stopped


def test_simulated_steps_use_the_engines_context_buckets(context_engine: Engine) -> None:
    contexts = set()
    for seed in range(3):
        candidate = configure(context_engine)
        requests = random_requests(seed, 160, spread_s=1.0)
        real, num_output_tokens = run_engine(context_engine, requests)
        workload = Workload(traced(requests, num_output_tokens))
        assert shapes(simulated_steps(workload, candidate)) == shapes(real)
        contexts |= {step.bucket.name for step in real}
    assert contexts == {"prefill_t32", "decode_b3_c128", "decode_b3_c160"}


def test_a_recorded_account_is_the_simulated_one(sync_engine: Engine) -> None:
    candidate = configure(sync_engine)
    requests = random_requests(9, 64, spread_s=0.0)
    real, num_output_tokens = run_engine(sync_engine, requests)
    result = simulate(Workload(traced(requests, num_output_tokens)), candidate, TIMES)
    assert result.num_steps == len(real)
    for bucket, counts in result.account.by_bucket.items():
        mine = [step for step in real if step.bucket == bucket]
        assert counts.num_uses == len(mine)
        assert counts.num_real_tokens == sum(step.num_tokens for step in mine)
        assert counts.num_cached_tokens == sum(step.num_cached_tokens for step in mine)


def test_a_candidate_is_what_an_artifact_schedules_with(llama: Compiled, tmp_path: Path) -> None:
    artifact = Artifact.open(llama.artifact)
    manifest = artifact.manifest
    candidate = Candidate.of("tiny", manifest.settings, manifest.buckets)
    assert candidate.scheduler == artifact.scheduler_config()
    assert not candidate.async_scheduling
    copy = Artifact.open(async_copy(llama.artifact, tmp_path / "async")).manifest
    assert Candidate.of("tiny", copy.settings, copy.buckets).async_scheduling
