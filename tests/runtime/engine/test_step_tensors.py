"""From the scheduler's counts to the sizes of tensors, and the graphs that are picked for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Compiled
from scheduler_factory import make_neuron, make_request, run_step
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.step import GraphCall
from neuron_llm.runtime.sampling.sampler import Sampler
from neuron_llm.scheduler import BucketSet, DecodeBucket, NeuronScheduler, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

TOKENS_BUCKETS = (256, 512, 1024, 2048, 4096, 8192)
MAX_MODEL_LEN, BLOCK_SIZE = 16_384, 8


class NoSession:
    """Inputs are built without any graph."""


class Prepared:
    """A scheduler and the runner that prepares its steps; nothing is run."""

    def __init__(self) -> None:
        self.scheduler: NeuronScheduler = make_neuron(
            max_num_seqs=8,
            max_num_batched_tokens=8192,
            max_model_len=MAX_MODEL_LEN,
            block_size=BLOCK_SIZE,
            num_blocks=8 * MAX_MODEL_LEN // BLOCK_SIZE + 1,
            num_batched_tokens_buckets=TOKENS_BUCKETS,
        )
        buckets = BucketSet(
            prefill=tuple(map(PrefillBucket, TOKENS_BUCKETS)),
            decode=tuple(DecodeBucket(n, MAX_MODEL_LEN) for n in (1, 2, 4, 8)),
        )
        session: Any = NoSession()
        self.runner = ModelRunner(
            session, buckets, Sampler(()), max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE
        )

    def add(self, request_id: str, prompt: range, max_tokens: int = 3) -> None:
        request = make_request(request_id, prompt=prompt, max_tokens=max_tokens)
        self.scheduler.add_request(request)
        state = self.runner.sampler.new_state(request_id, SamplingParams())
        self.runner.add_sampling(request_id, state)

    def step(self) -> GraphCall:
        output = self.scheduler.schedule()
        prepared = self.runner.prepare(output)
        assert prepared is not None
        sampled = run_step(output, self.scheduler, 7)
        for req_id, token_ids in zip(sampled.req_ids, sampled.sampled_token_ids, strict=True):
            self.runner.requests[req_id].token_ids += token_ids
        self.scheduler.update_from_output(output, sampled)
        (call,) = prepared.calls
        return call


@pytest.mark.parametrize(
    ("prompt_len", "num_cached", "size"),
    [(5000, 0, 8192), (5000, 1000, 4096), (2048, 0, 2048), (200, 0, 256)],
)
def test_the_tensors_of_a_prefill_have_the_schedulers_padded_size(
    prompt_len: int, num_cached: int, size: int
) -> None:
    prepared = Prepared()
    if num_cached:
        prepared.add("before", range(num_cached + 1), max_tokens=1)
        prepared.step()
    prepared.add("r", range(prompt_len))
    one = prepared.step()
    num_new = prompt_len - num_cached
    assert one.bucket == PrefillBucket(size)
    assert one.inputs.input_ids.tolist() == [*range(num_cached, prompt_len)] + [0] * (
        size - num_new
    )
    assert one.inputs.positions.tolist() == [*range(num_cached, prompt_len)] + [prompt_len - 1] * (
        size - num_new
    )
    assert (one.inputs.slot_mapping == -1).sum() == size - num_new
    decode = prepared.step()
    assert decode.bucket == DecodeBucket(1, MAX_MODEL_LEN)
    assert decode.inputs.input_ids.tolist() == [7]
    assert decode.inputs.positions.tolist() == [prompt_len]


@pytest.mark.parametrize(("num_seqs", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)])
def test_a_decode_is_padded_in_rows_and_not_in_tokens(num_seqs: int, size: int) -> None:
    prepared = Prepared()
    for index in range(num_seqs):
        prepared.add(f"r{index}", range(10 * index, 10 * index + 5 + index))
        prepared.step()
    decode = prepared.step()
    assert decode.bucket == DecodeBucket(size, MAX_MODEL_LEN)
    assert decode.inputs.input_ids.tolist() == [7] * num_seqs + [0] * (size - num_seqs)
    assert decode.inputs.context_lens.tolist() == [
        *(6 + index for index in range(num_seqs)),
        *[0] * (size - num_seqs),
    ]


@pytest.fixture(scope="module")
def loaded(qwen3: Compiled) -> LLM:
    return LLM(qwen3.artifact)


@pytest.fixture
def steps(loaded: LLM) -> Iterator[list[StepRecord]]:
    recorded: list[StepRecord] = []
    loaded.engine.scheduler.reset_prefix_cache()
    loaded.engine.on_step = recorded.append
    yield recorded
    loaded.engine.on_step = lambda _: None


def test_a_decode_takes_the_smallest_context_that_holds_its_longest_row(
    qwen3: Compiled, loaded: LLM, steps: list[StepRecord]
) -> None:
    reference = load_reference(qwen3.model)
    prompts = [random_prompt(length, seed=length) for length in (120, 5, 60)]
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    outputs = loaded.generate(prompts, params)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [
        reference_tokens(reference, prompt, 20) for prompt in prompts
    ]
    decodes = [step.bucket for step in steps if isinstance(step.bucket, DecodeBucket)]
    # The longest row attends to 121, 122, … 139 tokens.
    assert decodes == [DecodeBucket(3, 128)] * 8 + [DecodeBucket(3, 160)] * 11


def test_the_longest_context_ends_at_max_model_len(
    qwen3: Compiled, loaded: LLM, steps: list[StepRecord]
) -> None:
    prompt = random_prompt(150, seed=150)
    params = SamplingParams(temperature=0, max_tokens=99, ignore_eos=True)
    (output,) = loaded.generate([prompt], params)
    expected = reference_tokens(load_reference(qwen3.model), prompt, 10)
    assert list(output.outputs[0].token_ids) == expected
    decodes = [step.bucket for step in steps if isinstance(step.bucket, DecodeBucket)]
    assert decodes == [DecodeBucket(3, 160)] * 9
