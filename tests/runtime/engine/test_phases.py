"""The phases of a step, one by one, and what timing them adds: nothing but times."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from scheduler_factory import make_neuron
from tokenizer_factory import byte_level_backend, save_tokenizer

from neuron_llm import SamplingParams
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.input_processor import InputProcessor
from neuron_llm.runtime.engine.live_requests import LiveRequests
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.engine.outputs import StepOutput
from neuron_llm.runtime.engine.phases import StepPhases
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.timed_phases import TimedPhases
from neuron_llm.runtime.sampling.sampler import Sampler
from neuron_llm.runtime.text.tokenizer import Tokenizer
from neuron_llm.runtime.watch.observer import NoObserver
from neuron_llm.runtime.watch.step_trace import Span, StepTrace
from neuron_llm.scheduler import Bucket, BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

VOCAB_SIZE = 300
PARAMS = SamplingParams(temperature=0, max_tokens=3)


class Session:
    """Graphs whose most likely token is the row's own and one."""

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        last = inputs.input_ids[inputs.logits_indices]
        return torch.nn.functional.one_hot((last + 1).long(), VOCAB_SIZE).float()


class Watcher(NoObserver):
    def __init__(self) -> None:
        self.traces: list[StepTrace] = []
        self.first_tokens: list[tuple[str, float]] = []

    def on_step(self, trace: StepTrace) -> None:
        self.traces.append(trace)

    def on_first_token(self, request_id: str, at: float) -> None:
        self.first_tokens.append((request_id, at))


class Parts:
    """What an engine consists of, on a clock that moves by a second whenever it is read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        sizes = {"max_model_len": 64, "block_size": 4}
        self.scheduler = make_neuron(
            max_num_seqs=4,
            max_num_batched_tokens=8,
            num_blocks=65,
            num_batched_tokens_buckets=(8,),
            **sizes,
        )
        session: Any = Session()
        buckets = BucketSet(prefill=(PrefillBucket(8),), decode=(DecodeBucket(4, 64),))
        self.runner = ModelRunner(session, buckets, Sampler(()), **sizes)
        self.watcher = Watcher()
        self.records: list[StepRecord] = []
        ticks = itertools.count()
        self._clock = lambda: float(next(ticks))
        self.requests = LiveRequests(
            self.scheduler, self.runner, tokenizer, observer=self.watcher, clock=self._clock
        )
        self.inputs = InputProcessor(
            tokenizer,
            self.runner.sampler,
            EngineOptions(),
            vocab_size=VOCAB_SIZE,
            max_model_len=64,
            clock=self._clock,
        )

    def add(self, request_id: str, prompt: list[int], params: SamplingParams = PARAMS) -> None:
        self.requests.add(request_id, self.inputs.sequences(request_id, prompt, params))

    def timed(self) -> TimedPhases:
        return TimedPhases(
            self.scheduler,
            self.runner,
            self.requests,
            clock=self._clock,
            on_step=self.records.append,
            observer=self.watcher,
        )

    def untimed(self) -> StepPhases:
        return StepPhases(self.scheduler, self.runner, self.requests)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer.load(save_tokenizer(directory, byte_level_backend()))


@pytest.fixture
def parts(tokenizer: Tokenizer) -> Parts:
    return Parts(tokenizer)


def run(step: StepPhases) -> list[StepOutput] | None:
    prepared = step.prepare(step.schedule())
    if prepared is None:
        return None
    sampled = step.sample(prepared, step.execute(prepared))
    return step.publish(sampled, step.update(sampled))


def test_the_phases_take_a_prompt_to_its_tokens(parts: Parts) -> None:
    parts.add("r", [7, 8])
    step = parts.untimed()
    scheduled = step.schedule()
    assert scheduled.num_scheduled_tokens == {"r": 2}
    prepared = step.prepare(scheduled)
    assert prepared is not None
    assert [call.bucket for call in prepared.calls] == [PrefillBucket(8)]
    outputs = step.execute(prepared)
    assert outputs[0].argmax() == 9
    sampled = step.sample(prepared, outputs)
    assert sampled.output.sampled_token_ids == [[9]]
    core_outputs = step.update(sampled)
    assert [output.new_token_ids for output in core_outputs] == [[9]]
    (output,) = step.publish(sampled, core_outputs)
    assert (output.request_id, output.result) == ("r", None)
    run(parts.untimed())
    ended = run(parts.untimed())
    assert ended is not None and ended[0].result is not None
    assert ended[0].result.outputs[0].token_ids == (9, 10, 11)
    assert run(parts.untimed()) is None


def test_a_timed_step_says_when_each_phase_was_and_how_long_its_request_waited(
    parts: Parts,
) -> None:
    parts.add("r", [7, 8])
    run(parts.timed())
    run(parts.timed())
    (first, second) = parts.watcher.traces
    assert first.host == (
        Span("schedule", 1.0, 2.0),
        Span("prepare", 3.0, 4.0),
        Span("sample", 7.0, 8.0),
        Span("update", 9.0, 10.0),
        Span("publish", 11.0, 13.0),  # It asks for the time of the token.
    )
    assert first.graph == Span("prefill_t8", 5.0, 6.0)
    assert first.stats.num_scheduled_tokens == 2
    assert (first.record.seconds, first.record.queue_seconds) == (1.0, 5.0)
    assert second.graph.name == "decode_b4_c64"
    assert second.record.queue_seconds is None
    assert parts.records == [first.record, second.record]
    # Once, though the second step gave a token too.
    assert parts.watcher.first_tokens == [("r", 12.0)]


def test_queues_and_blocks_are_told_as_they_were_when_the_step_was_scheduled(parts: Parts) -> None:
    parts.add("r", [7, 8])
    for _ in range(3):
        run(parts.timed())
    assert not parts.scheduler.has_unfinished_requests()
    stats = [trace.stats for trace in parts.watcher.traces]
    assert [(told.num_running, told.num_free_blocks) for told in stats] == [(1, 63)] * 3


def test_a_request_of_which_a_completion_is_refused_leaves_nothing_behind(parts: Parts) -> None:
    first, second = (next(parts.inputs.sequences("x", [7, 8], PARAMS)) for _ in range(2))
    with pytest.raises(RequestError, match="has the id `x`"):
        parts.requests.add("r", [first, second])
    assert not parts.scheduler.has_unfinished_requests()
    assert not parts.runner.sampling_states
    parts.add("x", [7, 8])
    assert run(parts.untimed()) is not None


def test_a_row_that_failed_after_its_request_was_aborted_ends_nobody(parts: Parts) -> None:
    parts.add("r", [7, 8])
    step = parts.untimed()
    prepared = step.prepare(step.schedule())
    assert prepared is not None
    sampled = step.sample(prepared, torch.full_like(step.execute(prepared), torch.nan))
    assert [failure.row.req_id for failure in sampled.failures] == ["r"]
    parts.requests.abort(["r"])
    parts.add("r", [60])
    assert step.publish(sampled, step.update(sampled)) == []
    outputs = [output for _ in range(3) for output in run(parts.untimed()) or ()]
    assert outputs[-1].result is not None
    assert outputs[-1].result.outputs[0].token_ids == (61, 62, 63)


def test_a_step_of_several_graphs_tells_what_is_the_whole_steps_with_the_first(
    parts: Parts,
) -> None:
    params = SamplingParams(temperature=0, max_tokens=3, prompt_logprobs=0)
    parts.add("r", [1, 2, 3, 4, 5, 6], params)
    run(parts.timed())
    (first, second) = parts.watcher.traces
    names = ["schedule", "prepare", "sample", "sample", "sample", "update", "publish"]
    assert [span.name for span in first.host] == names
    assert first.graph.ended <= first.host[2].started < second.graph.started
    assert second.host == ()
    assert [record.num_seqs for record in parts.records] == [4, 2]
    assert [record.queue_seconds for record in parts.records] == [first.graph.started, None]


def test_a_step_without_anything_to_compute_is_not_told(parts: Parts) -> None:
    assert run(parts.timed()) is None
    assert not parts.watcher.traces and not parts.records


def test_timing_changes_no_output(tokenizer: Tokenizer) -> None:
    timed, untimed = Parts(tokenizer), Parts(tokenizer)
    given = []
    for parts, step in ((timed, timed.timed), (untimed, untimed.untimed)):
        parts.add("a", [1, 2, 3], SamplingParams(temperature=0, max_tokens=4, logprobs=1))
        parts.add("b", [60, 61], SamplingParams(n=2, seed=1, max_tokens=3))
        outputs: list[Any] = []
        while parts.scheduler.has_unfinished_requests():
            for output in run(step()) or ():
                result = output.result and output.result.outputs
                outputs.append((output.request_id, output.index, output.new_text, result))
        given.append(outputs)
    assert given[0] == given[1]
    assert sum(result is not None for *_, result in given[0]) == 2
