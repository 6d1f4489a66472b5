"""The graphs of every family, run eagerly: in place as on the CPU, and as a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from families import FAMILIES
from transformers import AutoConfig, AutoModelForCausalLM

from neuron_llm.backends.graph.attention import ATTENTION_NAME
from neuron_llm.backends.graph.experts import DENSE_EXPERTS_NAME, EXPERTS_NAME
from neuron_llm.backends.graph.inputs import GraphInputs, StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.graph.module import GraphModule
from neuron_llm.backends.graph.rotary import fix_rotary_frequencies
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.graph.export import graph_of_model
from neuron_llm.backends.neuron.graph.functional_attention import FUNCTIONAL_ATTENTION_NAME
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket

TARGET = NeuronTarget("trn2", 2)
MAX_MODEL_LEN, BLOCK_SIZE, NUM_BLOCKS = 64, 4, 41
PREFILL = PrefillBucket(16)


def build_model(family: str, attention: str, experts: str | None = None, *, seed: int = 0) -> Any:
    """Return a model of a graph: one set of rotary frequencies, whatever the length."""
    model = random_model(family, attention, experts, seed=seed)
    fix_rotary_frequencies(model, MAX_MODEL_LEN)
    return model


def random_model(family: str, attention: str, experts: str | None = None, *, seed: int = 0) -> Any:
    """Return a model with wide random weights, so that its tokens differ from step to step."""
    settings = dict(FAMILIES[family])
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        config,
        dtype=torch.float32,
        attn_implementation=attention,
        experts_implementation=experts,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.5))
    return model.eval().requires_grad_(False)


def graph_spec(family: str, bucket: Bucket, dtype: str = "float32") -> GraphSpec:
    # Token ids are no part of an architecture.
    settings = {k: v for k, v in FAMILIES[family].items() if not k.endswith("token_id")}
    return GraphSpec(bucket, settings, dtype, MAX_MODEL_LEN, BLOCK_SIZE, NUM_BLOCKS)


class InPlaceSession:
    """The CPU backend's plain graph, run eagerly."""

    def __init__(self, family: str) -> None:
        self.module = GraphModule(build_model(family, ATTENTION_NAME, EXPERTS_NAME))
        caches = nan_caches(self.module.model)
        self.key_caches, self.value_caches = caches[::2], caches[1::2]

    @torch.inference_mode()
    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        logits: torch.Tensor = self.module(*inputs.as_tuple(), self.key_caches, self.value_caches)
        return logits


class FunctionalSession:
    """The function that the Neuron backend compiles, run eagerly, its results kept."""

    def __init__(self, family: str, target: NeuronTarget = TARGET) -> None:
        self.family, self.target = family, target
        self.model = build_model(family, FUNCTIONAL_ATTENTION_NAME, DENSE_EXPERTS_NAME)
        self.kv_caches = nan_caches(self.model)

    @torch.inference_mode()
    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        graph = graph_of_model(self.model, graph_spec(self.family, bucket), self.target)
        before = [cache.clone() for cache in self.kv_caches]
        result: torch.Tensor
        result, *caches = graph(*inputs.as_tuple(), *self.kv_caches)
        for cache, same in zip(self.kv_caches, before, strict=True):
            assert torch.equal(cache.nan_to_num(9.0), same.nan_to_num(9.0)), "written in place"
        self.kv_caches = caches
        return result


def nan_caches(model: torch.nn.Module) -> list[torch.Tensor]:
    config: Any = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (NUM_BLOCKS, BLOCK_SIZE, config.num_key_value_heads, head_dim)
    return [torch.full(shape, torch.nan) for _ in range(2 * config.num_hidden_layers)]


def generate(
    session: Any, prompts: Sequence[Sequence[int]], num_tokens: int, chunk: int | None = None
) -> list[list[int]]:
    """Prefill each prompt, whole or in chunks, and decode all of them together, greedily."""
    tables, tokens, free = [], [], list(range(1, NUM_BLOCKS))
    for prompt in prompts:
        num_blocks = -(-(len(prompt) + num_tokens) // BLOCK_SIZE)
        # From the end: tables are not ascending.
        table, free = free[-num_blocks:][::-1], free[:-num_blocks]
        size = chunk or PREFILL.num_tokens
        for first in range(0, len(prompt), size):
            step = StepTokens(prompt[first : first + size], first, table)
            inputs = prefill_inputs(
                PREFILL, step, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE
            )
            result = session.execute(PREFILL, inputs)
        tables.append(table)
        tokens.append([best(result[0])])
    decode = DecodeBucket(next(b for b in (1, 2, 4, 8) if b >= len(prompts)), MAX_MODEL_LEN)
    for step_index in range(num_tokens - 1):
        rows = [
            StepTokens(own[-1:], len(prompt) + step_index, table)
            for prompt, own, table in zip(prompts, tokens, tables, strict=True)
        ]
        result = session.execute(decode, decode_inputs(decode, rows, block_size=BLOCK_SIZE))
        for own, row in zip(tokens, result, strict=False):
            own.append(best(row))
    return tokens


def best(row: torch.Tensor) -> int:
    """Return the most likely token of a row of logits, or the token that the graph gave."""
    return int(row) if row.dim() == 0 else int(row.argmax())
