"""A family's model compiled for the CPU, and held to eager Hugging Face."""

from __future__ import annotations

from pathlib import Path

from conftest import compile_tiny
from families import FAMILIES, SHORTEST_PROMPTS
from family_engine import BLOCK_SIZE, MAX_MODEL_LEN, MAX_NUM_SEQS, FamilyReference, answers
from tiny_models import save_model

from neuron_llm import LLM

BUCKET = 16
CONFIG = f"""\
model: {{model}}
dtype: float32
max_model_len: {MAX_MODEL_LEN}
max_num_seqs: {MAX_NUM_SEQS}
max_num_batched_tokens: {BUCKET}
block_size: {BLOCK_SIZE}
neuron_config:
  num_batched_tokens_buckets: [{BUCKET}]
  num_seqs_buckets: [{MAX_NUM_SEQS}]
"""


def assert_compiled_family_equals_eager(family: str, cache_dir: Path, directory: Path) -> None:
    """Compile one prefill and one decode graph, verified, and compare answers, cold and warm.

    Args:
        family: a name of `FAMILIES`.
        cache_dir: the compile cache.
        directory: empty; the model and the artifact go there.
    """
    model = save_model(directory / "model", FAMILIES[family])
    compiled = compile_tiny(model, CONFIG, cache_dir, directory)
    reference = FamilyReference(model, BUCKET, SHORTEST_PROMPTS.get(family, 1))
    assert reference.is_diverse()
    for concurrency in (1, MAX_NUM_SEQS):
        engine = LLM(compiled.artifact).engine
        cold = answers(engine, reference.prompts, concurrency)
        assert cold.token_ids == reference.expected
        assert cold.num_cached_tokens == 0
        warm = answers(engine, reference.prompts[-3:], concurrency)
        assert warm.token_ids == reference.expected[-3:]
        assert warm.num_cached_tokens > 0
