"""A short self-test: a few tokens through the graphs, compared with what they gave when compiled.

Which prompt is used is decided when the artifact is made: one whose most likely tokens lead by a
clear margin, so that another CPU's rounding does not change them and anything worse does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from neuron_llm.artifact.manifest import GoldenEntry, Manifest
from neuron_llm.backends.graph.inputs import (
    StepTokens,
    decode_inputs,
    prefill_inputs,
)
from neuron_llm.backends.protocol import Session
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.block_pool import ceil_div, num_blocks_for
from neuron_llm.scheduler.buckets import Bucket, PrefillBucket

LogitsSource = Callable[[Sequence[int], Sequence[int]], Mapping[int, torch.Tensor]]
"""Gives a model's logits, `[vocab_size]` float32 each, for a sequence and positions in it."""

_NUM_CANDIDATES = 8
_MAX_PROMPT_LEN = 12


class GoldenTest:
    """Runs prompts through the smallest prefill graph, whole and halved, and all decode graphs.

    Args:
        session: loaded graphs; the KV of a few blocks is overwritten.
        manifest: of their artifact.
    """

    def __init__(self, session: Session, manifest: Manifest) -> None:
        self._session = session
        self._manifest = manifest
        self._settings = manifest.settings
        self._prefill = min(manifest.buckets.prefill)

    def record(self, logits_of: LogitsSource, seed: int = 0) -> GoldenEntry:
        """Return a prompt and its tokens: of several, the one whose tokens lead most clearly.

        Args:
            logits_of: of the model, which say by how much; graphs may give tokens alone.
            seed: of the prompts.
        """
        rng = random.Random(seed)
        length = min(_MAX_PROMPT_LEN, self._prefill.num_tokens, self._settings.max_model_len - 1)
        vocabulary = range(self._manifest.model.vocab_size)
        candidates = [rng.choices(vocabulary, k=length) for _ in range(_NUM_CANDIDATES)]
        prompt = max(candidates, key=lambda candidate: _lead(logits_of, candidate))
        return GoldenEntry(prompt_token_ids=tuple(prompt), tokens=self._run(prompt))

    def check(self) -> None:
        """Compare with what was recorded, if anything was; a graph that was removed is not missed.

        Raises:
            ArtifactError: a graph gives another token here; all that do are named.
        """
        golden = self._manifest.golden
        if golden is None:
            return
        found = self._run(golden.prompt_token_ids)
        differing = [
            f"`{name}` gives token {found[name]} instead of {token}"
            for name, token in golden.tokens.items()
            if name in found and found[name] != token
        ]
        if differing:
            raise ArtifactError(
                f"the graphs do not compute here what they did when compiled: "
                f"{'; '.join(differing)}",
                hint="compile it again on this machine; `--no-self-test` runs it as it is",
            )

    def _run(self, prompt: Sequence[int]) -> dict[str, int]:
        """Return each call's most likely token."""
        return {name: self._token(bucket, rows) for name, bucket, rows in self._calls(prompt)}

    def _calls(self, prompt: Sequence[int]) -> Iterator[tuple[str, Bucket, StepTokens]]:
        """Yield the calls in order: later ones read the KV of earlier ones."""
        num_blocks = num_blocks_for(len(prompt) + 1, self._settings.block_size)
        table, half = range(1, num_blocks + 1), ceil_div(len(prompt), 2)
        prefill = self._prefill
        yield prefill.name, prefill, StepTokens(prompt, 0, table)
        if half < len(prompt):
            # What comes before it is in the cache already, as it would be after a first chunk.
            rest = StepTokens(prompt[half:], half, table)
            yield f"{prefill.name}, second chunk", prefill, rest
        for decode in self._manifest.buckets.decode:
            yield decode.name, decode, StepTokens(_continued(prompt)[-1:], len(prompt), table)

    def _token(self, bucket: Bucket, tokens: StepTokens) -> int:
        size = self._settings.block_size
        if isinstance(bucket, PrefillBucket):
            length = self._settings.max_model_len
            inputs = prefill_inputs(bucket, tokens, max_model_len=length, block_size=size)
        else:
            inputs = decode_inputs(bucket, [tokens], block_size=size)
        row = self._session.execute(bucket, inputs)[0]
        return int(row if self._settings.samples_greedily else row.argmax())


def _continued(prompt: Sequence[int]) -> list[int]:
    """Return the prompt and the token that is decoded behind it: its first one again."""
    return [*prompt, prompt[0]]


def _lead(logits_of: LogitsSource, prompt: Sequence[int]) -> float:
    """Return by how much the most likely token leads, where it leads least."""
    positions = [len(prompt) - 1, len(prompt)]
    logits = logits_of(_continued(prompt), positions)
    highest = torch.stack([logits[position].topk(2).values for position in positions])
    return (highest[:, 0] - highest[:, 1]).min().item()
