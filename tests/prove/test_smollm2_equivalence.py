"""SmolLM2-135M in float32: greedy output equals eager Hugging Face on 64 prompts of 48 tokens.

At concurrency 1, 3 and 8, with prompts whole and in chunks, with a cold and a warm prefix cache.
A fork counts as equal only where the reference's two best logits are closer than 1e-4; each is
listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import compile_tiny
from repository import MODELS
from smollm2_prompts import PROMPTS
from tiny_models import load_reference, reference_tokens

from neuron_llm import LLM, SamplingParams

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]

MODEL = MODELS / "smollm2-135m-instruct"
NUM_TOKENS = 48
MAX_TIE_GAP = 1e-4
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)

CONFIG = """\
model: {model}
dtype: float32
max_model_len: 160
max_num_seqs: 8
max_num_batched_tokens: MAX_TOKENS
block_size: 16
neuron_config:
  num_batched_tokens_buckets: BUCKETS
  num_seqs_buckets: [1, 3, 8]
"""
# The same graphs serve both: what differs is how long a chunk may be.
WHOLE = CONFIG.replace("MAX_TOKENS", "112").replace("BUCKETS", "[32, 112]")
CHUNKED = CONFIG.replace("MAX_TOKENS", "32").replace("BUCKETS", "[32]")


class Reference:
    """Eager Hugging Face, one unpadded prompt at a time."""

    def __init__(self, encode: Any) -> None:
        self.model = load_reference(MODEL)
        self.prompts = [encode([{"role": "user", "content": text}]) for text in PROMPTS]
        self.tokens = [reference_tokens(self.model, p, NUM_TOKENS) for p in self.prompts]

    def top_two_gap(self, prompt: Sequence[int], common: Sequence[int]) -> float:
        """Return the difference of the two best logits after `prompt` and `common`."""
        with torch.no_grad():
            logits = self.model(torch.tensor([[*prompt, *common]])).logits[0, -1]
        best, second = logits.topk(2).values.tolist()
        return float(best - second)


@pytest.fixture(scope="module", params=["whole", "chunked"])
def llm(
    request: pytest.FixtureRequest,
    compile_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LLM]:
    config = WHOLE if request.param == "whole" else CHUNKED
    directory = tmp_path_factory.mktemp(request.param)
    yield LLM(compile_tiny(MODEL, config, compile_cache, directory).artifact)


@pytest.fixture(scope="module")
def reference() -> Reference:
    from neuron_llm.runtime.text.tokenizer import Tokenizer

    return Reference(Tokenizer.load(MODEL).encode_messages)


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_equals_eager(llm: LLM, reference: Reference, concurrency: int) -> None:
    assert len({tuple(tokens) for tokens in reference.tokens}) >= 60, "outputs must differ"
    llm.engine.scheduler.reset_prefix_cache()
    forks: list[str] = []
    for temperature in ("cold", "warm"):
        for first in range(0, 64, concurrency):
            group = range(first, min(first + concurrency, 64))
            outputs = llm.generate([reference.prompts[i] for i in group], GREEDY)
            if temperature == "warm":
                assert all(output.num_cached_tokens >= 16 for output in outputs)
            for i, output in zip(group, outputs, strict=True):
                fork = _fork(reference, i, list(output.outputs[0].token_ids))
                if fork is not None:
                    forks.append(f"{temperature}, prompt {i}: {fork}")
    print(
        f"concurrency {concurrency}: 128 outputs of {NUM_TOKENS} tokens, forks: {forks or 'none'}"
    )


def _fork(reference: Reference, i: int, tokens: list[int]) -> str | None:
    """Return a description of where the output left the reference at a tie, or None."""
    expected = reference.tokens[i]
    assert len(tokens) == NUM_TOKENS
    if tokens == expected:
        return None
    at = next(k for k in range(NUM_TOKENS) if tokens[k] != expected[k])
    gap = reference.top_two_gap(reference.prompts[i], expected[:at])
    assert gap < MAX_TIE_GAP, f"prompt {i} forks at token {at}, where the gap is {gap}"
    return f"token {at}, gap {gap:.2e}"
