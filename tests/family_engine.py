"""Engines over the programs that `torch.export` gives of a family, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.manifest import GraphEntry, Manifest, ModelEntry, RuntimeSettings
from neuron_llm.backends.cpu.backend import CpuBackend
from neuron_llm.backends.cpu.export import constant_spec, export_graph
from neuron_llm.backends.cpu.operators.library import load_library
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.backends.graph.inputs import GraphInputs, num_rows
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.protocol import Session
from neuron_llm.compile.model.checkpoint import read_architecture
from neuron_llm.compile.model.model_spec import read_model_spec
from neuron_llm.compile.weights import load_weights
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.scheduler import Bucket, DecodeBucket, PrefillBucket

BLOCK_SIZE, MAX_MODEL_LEN, MAX_NUM_SEQS = 4, 48, 3
NUM_BLOCKS = MAX_NUM_SEQS * MAX_MODEL_LEN // BLOCK_SIZE + 1
DECODE_BUCKET = DecodeBucket(MAX_NUM_SEQS, MAX_MODEL_LEN)
NUM_TOKENS = 6
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


def use_operators(cache_dir: Path) -> None:
    """Let this process have the CPU operators: the library that compiles put into the cache."""
    path = CpuBackend(CpuTarget.choose(None, custom_ops=True)).operator_library(cache_dir)
    assert path is not None
    use_library(load_library(path))


class ExportedSession:
    """Runs exported programs, the weights of a checkpoint laid out as for compiled graphs.

    Args:
        model: a Hugging Face directory.
        buckets: the programs to export.
        custom_ops: whether attention and linear layers are the CPU operators, which must be in
            use then (`use_operators`).
    """

    def __init__(self, model: Path, buckets: Sequence[Bucket], *, custom_ops: bool) -> None:
        weights = load_weights(model, torch.float32, max_model_len=MAX_MODEL_LEN)
        architecture, spec = read_architecture(model), read_model_spec(model)
        shape = (NUM_BLOCKS, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
        self.key_caches = [torch.zeros(shape) for _ in range(spec.num_layers)]
        self.value_caches = [torch.zeros(shape) for _ in range(spec.num_layers)]
        self._logits = {b: torch.zeros(num_rows(b), spec.vocab_size) for b in buckets}
        self._programs = {}
        for bucket in buckets:
            graph_spec = GraphSpec(
                bucket=bucket,
                architecture=architecture,
                dtype="float32",
                max_model_len=MAX_MODEL_LEN,
                block_size=BLOCK_SIZE,
                num_blocks=NUM_BLOCKS,
            )
            self._programs[bucket] = _program(graph_spec, weights, custom_ops=custom_ops)

    @torch.inference_mode()
    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        logits = self._logits[bucket]
        self._programs[bucket](logits, *inputs.as_tuple(), self.key_caches, self.value_caches)
        return logits


def _program(
    spec: GraphSpec, weights: dict[str, torch.Tensor], *, custom_ops: bool
) -> torch.nn.Module:
    graph = export_graph(spec, custom_ops=custom_ops)
    module = graph.exported.module(check_guards=False)
    backend = CpuBackend(CpuTarget.choose(None, custom_ops=custom_ops))
    own = [*module.named_parameters(), *module.named_buffers()]
    with torch.no_grad():
        for name, tensor in own:
            constant = constant_spec(name, name, tensor, graph.stacked)
            parts = constant.parts or (constant.weight,)
            if parts[0] in weights:  # Otherwise a constant of the graph alone.
                tensor.copy_(backend.lay_out(constant, [weights[part] for part in parts]))
    return module


@dataclass(frozen=True)
class _ExportedArtifact(Artifact):
    session: Session

    @property
    def tokenizer_dir(self) -> Path:
        return self.directory

    def load(self, *, self_test: bool = True) -> Session:
        return self.session


def exported_engine(model: Path, session: Session, tokens_buckets: Sequence[int]) -> Engine:
    """Return an engine over exported programs; the last bucket is the largest chunk."""
    spec = read_model_spec(model)
    buckets: list[Bucket] = [*map(PrefillBucket, tokens_buckets), DECODE_BUCKET]
    manifest = Manifest.model_construct(
        settings=RuntimeSettings(
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=tokens_buckets[-1],
            block_size=BLOCK_SIZE,
            num_blocks=NUM_BLOCKS,
            enable_prefix_caching=True,
            async_scheduling=False,
            kv_admission="reserve",
            max_consecutive_prefills=None,
        ),
        model=ModelEntry(
            model_type=spec.model_type,
            num_layers=spec.num_layers,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            vocab_size=spec.vocab_size,
        ),
        graphs=tuple(GraphEntry.model_construct(**asdict(bucket)) for bucket in buckets),
    )
    return Engine(_ExportedArtifact(model, manifest, session))


class FamilyReference:
    """Prompts whose lengths are the edges of blocks and buckets, and what eager says to them.

    Args:
        model: a Hugging Face directory.
        largest_bucket: prompts have up to twice as many tokens.
        shortest: tokens of the shortest prompt.
    """

    def __init__(self, model: Path, largest_bucket: int, shortest: int = 1) -> None:
        reference: Any = load_reference(model)
        half, double = largest_bucket // 2, 2 * largest_bucket
        edges = (BLOCK_SIZE, half, largest_bucket)
        lengths = {1, *(edge + step for edge in edges for step in (-1, 0, 1))}
        lengths |= {largest_bucket + half, double - 1, double}
        self.prompts = [
            random_prompt(length, seed=length) for length in sorted(lengths) if length >= shortest
        ]
        self.expected = [reference_tokens(reference, p, NUM_TOKENS) for p in self.prompts]

    def is_diverse(self) -> bool:
        """Whether the answers differ from each other and do not repeat themselves.

        A model that repeats one token would agree with any bug.
        """
        num_different = len({tuple(tokens) for tokens in self.expected})
        num_tokens = len({token for tokens in self.expected for token in tokens})
        return num_different == len(self.expected) and num_tokens > 2 * NUM_TOKENS


def assert_exported_family_equals_eager(
    engine: Engine, reference: FamilyReference, concurrency: int
) -> None:
    """Compare with a cold cache, then those prompts again whose blocks are in it."""
    cold = answers(engine, reference.prompts, concurrency)
    assert cold.token_ids == reference.expected
    assert cold.num_cached_tokens == 0
    warm = answers(engine, reference.prompts[-3:], concurrency)
    assert warm.token_ids == reference.expected[-3:]
    assert warm.num_cached_tokens > 0


def assert_plain_family_equals_eager(
    model: Path, reference: FamilyReference, num_tokens: int
) -> None:
    """Export the form in plain aten, prefill in chunks of so many tokens, and compare."""
    session = ExportedSession(model, [PrefillBucket(num_tokens), DECODE_BUCKET], custom_ops=False)
    engine = exported_engine(model, session, [num_tokens])
    assert_exported_family_equals_eager(engine, reference, MAX_NUM_SEQS)


@dataclass(frozen=True)
class Answers:
    """Token ids of each prompt's answer, and how many tokens of the prompts were in the cache."""

    token_ids: list[list[int]]
    num_cached_tokens: int


def answers(engine: Engine, prompts: Sequence[Sequence[int]], concurrency: int) -> Answers:
    """Return the greedy answers, at most `concurrency` prompts running at the same time."""
    token_ids: dict[str, list[int]] = {}
    num_cached_tokens = 0
    waiting = [(str(index), prompt) for index, prompt in enumerate(prompts)]
    for first in range(0, len(waiting), concurrency):
        for request_id, prompt in waiting[first : first + concurrency]:
            engine.add_request(request_id, prompt, GREEDY)
        while engine.has_unfinished_requests():
            for result in (output.result for output in engine.step()):
                if result is not None:
                    token_ids[result.request_id] = list(result.outputs[0].token_ids)
                    num_cached_tokens += result.num_cached_tokens
    return Answers([token_ids[request_id] for request_id, _ in waiting], num_cached_tokens)
