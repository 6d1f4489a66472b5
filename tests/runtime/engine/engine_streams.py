"""Random request streams through an engine, and an artifact with `async_scheduling` to run them."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manifest_edits import edit_manifest

from neuron_llm import SamplingParams
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.outputs import RequestOutput

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def async_copy(artifact: Path, directory: Path) -> Path:
    """Return a copy of an artifact that asks for async scheduling; its graphs are the same."""
    copy = Path(shutil.copytree(artifact, directory))
    edit_manifest(copy, lambda manifest: manifest["settings"].update(async_scheduling=True))
    return copy


@dataclass(frozen=True)
class StreamRequest:
    """A request, the call of `step` before which it arrives, and the one before which it goes."""

    request_id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    arrival: int
    abort: int | None


def random_requests(seed: int, max_model_len: int) -> list[StreamRequest]:
    """Return requests that crowd a small engine; the same seed gives the same ones."""
    rng = random.Random(seed)
    requests: list[StreamRequest] = []
    arrival = 0
    for index in range(rng.randint(1, 10)):
        arrival += rng.choice([0, 0, 0, 1, 4])
        base = rng.choice([(), *(r.prompt for r in requests)])
        new = [rng.randrange(256) for _ in range(rng.choice([1, 3, 9, rng.randint(1, 50)]))]
        prompt = (*base, *new)[-(max_model_len - 1) :]
        abort = arrival + rng.randint(0, 15) if rng.random() < 0.15 else None
        requests.append(StreamRequest(f"r{index}", prompt, _random_params(rng), arrival, abort))
    return requests


def _random_params(rng: random.Random) -> SamplingParams:
    max_tokens = rng.choice([1, 2, 5, 12, 30])
    sampling: dict[str, Any] = {"temperature": 0}
    if rng.random() < 0.5:
        sampling = {"temperature": 1.0, "top_p": rng.choice([1.0, 0.8]), "seed": rng.randrange(99)}
    if rng.random() < 0.4:
        sampling |= _random_processing(rng)
    return SamplingParams(
        **sampling,
        max_tokens=max_tokens,
        min_tokens=rng.choice([0, 0, rng.randint(0, max_tokens)]),
        stop=rng.sample(_LETTERS, rng.choice([0, 0, 4])),
        stop_token_ids=rng.sample(range(256), rng.choice([0, 0, 12])),
        ignore_eos=rng.random() < 0.5,
    )


def _random_processing(rng: random.Random) -> dict[str, Any]:
    """Return some of the fields that make the next token depend on those before it, or say more."""
    fields: dict[str, Any] = {
        "repetition_penalty": rng.choice([0.8, 1.3]),
        "presence_penalty": rng.choice([-1, 1.5]),
        "frequency_penalty": rng.choice([-0.5, 0.9]),
        "logit_bias": {token_id: rng.uniform(-5, 5) for token_id in rng.sample(range(256), 9)},
        "bad_words": rng.sample(_LETTERS, 5),
        "logprobs": rng.choice([0, 2]),
        "prompt_logprobs": rng.choice([0, 2]),
    }
    return {name: fields[name] for name in rng.sample(sorted(fields), rng.randint(1, 5))}


@dataclass
class StreamResult:
    """What a stream came to: each request's result and its pieces of text."""

    results: dict[str, RequestOutput] = field(default_factory=dict)
    pieces: dict[str, str] = field(default_factory=dict)

    def outcome(self, request_id: str) -> tuple[Any, ...]:
        """Return what must not depend on the engine."""
        (completion,) = self.results[request_id].outputs
        return (
            completion.token_ids,
            completion.text,
            completion.finish_reason,
            completion.stop_reason,
            self.pieces[request_id],
        )


def run_stream(engine: Engine, requests: list[StreamRequest]) -> StreamResult:
    """Run a stream to its end; every request ends exactly once, every block is free afterwards."""
    stream = StreamResult()
    step, last_event = 0, max(max(r.arrival, r.abort or 0) for r in requests)
    while step <= last_event or engine.has_unfinished_requests():
        for request in requests:
            if request.arrival == step:
                stream.pieces[request.request_id] = ""
                engine.add_request(request.request_id, request.prompt, request.params)
        aborted = [r.request_id for r in requests if r.abort == step]
        for output in engine.abort_requests(aborted):
            _end(stream, output)
        for step_output in engine.step():
            stream.pieces[step_output.request_id] += step_output.new_text
            if step_output.result is not None:
                _end(stream, step_output.result)
        step += 1
    assert set(stream.results) == {request.request_id for request in requests}
    kv = engine.scheduler.kv_cache_manager
    kv.check_integrity()
    assert kv.num_free_blocks == kv.block_pool.num_usable_blocks
    return stream


def _end(stream: StreamResult, output: RequestOutput) -> None:
    assert output.request_id not in stream.results, "it ended twice"
    stream.results[output.request_id] = output
