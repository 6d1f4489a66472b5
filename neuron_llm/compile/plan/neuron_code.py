"""How large a Neuron graph's code is: an estimate, for neuronx-cc alone knows.

The compiler unrolls a graph to instructions, each of which works on a tile. A multiplication takes
128 x 128 of one operand and 128 x 512 of the other, whichever way round is cheaper; everything else
is counted in tiles of 128 rows and 512 columns. A mixture of experts runs every expert. Copies
between memories are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.scheduler.block_pool import ceil_div
from neuron_llm.scheduler.buckets import Bucket, BucketSet, PrefillBucket

MAX_INSTRUCTIONS = 5_000_000
"""More were refused, as users report; the documentation names the limit and not the number."""

# The documented largest operands of one multiplication, and the rows and columns of other tiles.
_TILE_ROWS = 128
_TILE_COLUMNS = 512
# Measured: instructions of the HLO for one layer, each of which works on a tile of tokens at least.
_HLO_PER_LAYER = 325
# Passes over a tile of scores: scale, mask, maximum, difference, exponential, mask, sum, convert.
_SCORE_PASSES = 8

# An assumption: the documentation does not give the length of an instruction.
_INSTRUCTION_BYTES = 64
# Documented: micro-code of a physical core.
_MICROCODE_BYTES = 96 * 10**6


@dataclass(frozen=True)
class CodeEstimate:
    """The code of all graphs on a logical core.

    Attributes:
        num_instructions: of each graph, by name.
        microcode_bytes: beside the graphs' own code.
    """

    num_instructions: Mapping[str, int]
    microcode_bytes: int

    def code_bytes(self, graph_name: str) -> int:
        """Return the size of one graph's own code."""
        return self.num_instructions[graph_name] * _INSTRUCTION_BYTES

    @property
    def total_bytes(self) -> int:
        """All that a core holds: the code of every graph, and the micro-code."""
        return self.microcode_bytes + sum(map(self.code_bytes, self.num_instructions))


def estimate_code(
    buckets: BucketSet, model: ModelSpec, *, max_model_len: int, num_physical_cores: int
) -> CodeEstimate:
    """Return the estimate for every graph of an artifact.

    Args:
        buckets: the graphs.
        model: sizes of the layers.
        max_model_len: keys that a prefill reads.
        num_physical_cores: in a logical core.
    """
    return CodeEstimate(
        {b.name: estimate_instructions(b, model, max_model_len) for b in buckets.all},
        num_physical_cores * _MICROCODE_BYTES,
    )


def estimate_instructions(bucket: Bucket, model: ModelSpec, max_model_len: int) -> int:
    """Return about how many instructions a bucket's graph compiles to."""
    if isinstance(bucket, PrefillBucket):
        num_tokens, num_seqs, num_keys = bucket.num_tokens, 1, max_model_len
    else:
        num_tokens = num_seqs = bucket.batch_size
        num_keys = bucket.max_context_tokens
    head_parameters = model.vocab_size * model.hidden_size
    num_ends = 1 if model.tie_word_embeddings else 2
    layer_parameters = max(model.num_parameters - num_ends * head_parameters, 0)
    num_queries = num_tokens // num_seqs * (model.num_heads // model.num_kv_heads)
    attention = model.num_layers * num_seqs * model.num_kv_heads
    return (
        _weight_tiles(layer_parameters, num_tokens)
        + _weight_tiles(head_parameters, num_seqs)
        + attention * _attention_tiles(num_queries, num_keys, model.head_dim)
        + model.num_layers * _HLO_PER_LAYER * ceil_div(num_tokens, _TILE_ROWS)
    )


def _weight_tiles(num_parameters: int, num_rows: int) -> int:
    """Return the multiplications of rows with matrices of so many numbers in all."""
    weights_stay = ceil_div(num_parameters, _TILE_ROWS**2) * ceil_div(num_rows, _TILE_COLUMNS)
    tile = _TILE_ROWS * _TILE_COLUMNS
    rows_stay = ceil_div(num_parameters, tile) * ceil_div(num_rows, _TILE_ROWS)
    return min(weights_stay, rows_stay)


def _attention_tiles(num_queries: int, num_keys: int, head_dim: int) -> int:
    """Return what one head of keys takes: scores, their softmax, and the weighted values."""
    scores = ceil_div(num_queries, _TILE_ROWS) * ceil_div(num_keys, _TILE_COLUMNS)
    return (
        _product_tiles(num_queries, head_dim, num_keys)
        + _SCORE_PASSES * scores
        + _product_tiles(num_queries, num_keys, head_dim)
    )


def _product_tiles(rows: int, inner: int, columns: int) -> int:
    either = ceil_div(rows, _TILE_ROWS) * ceil_div(columns, _TILE_COLUMNS)
    other = ceil_div(columns, _TILE_ROWS) * ceil_div(rows, _TILE_COLUMNS)
    return ceil_div(inner, _TILE_ROWS) * min(either, other)
