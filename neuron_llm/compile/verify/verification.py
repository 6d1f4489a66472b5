"""Hold every compiled graph to the eager, unpadded model before an artifact is shipped.

Each graph alone is given the model's own KV as its past, so that a fault has one suspect. All else
is poison: whatever a graph must not read, in unused blocks, in the null block, behind the end of
the last block, is NaN; padded tokens have several ids. Logits must be the reference's within a
tolerance, whatever the padding, bit for bit; and nothing may be written but the tokens' own slots.
Of a graph that gives tokens instead, the reference's logit of each must be within the tolerance of
its largest.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from neuron_llm.backends.graph.inputs import (
    GraphInputs,
    StepTokens,
    decode_inputs,
    prefill_inputs,
)
from neuron_llm.backends.protocol import Session
from neuron_llm.compile.verify.cases import Case, Lengths, decode_cases, prefill_cases
from neuron_llm.compile.verify.reference import Reference, ReferenceSequence
from neuron_llm.compile.verify.row_check import (
    RowCheck,
    RowError,
    compare_logits,
    compare_token,
    rms,
)
from neuron_llm.errors import CompileError
from neuron_llm.scheduler.block_pool import num_blocks_for
from neuron_llm.scheduler.buckets import Bucket, BucketSet, PrefillBucket

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""Largest root mean square of the differences of a row of logits, in units of the row's spread; of
a token that a graph has chosen, how far below the largest logit its own may be.

Rounding to bfloat16 in thirty layers takes up to 0.35 of random tokens (SmolLM2-135M), and as much
in eager execution."""

_NUM_SEQUENCES = 2


@dataclass(frozen=True)
class Verdict:
    """What verifying a graph found.

    Attributes:
        num_cases: calls of the graph, those that only change the padding left out.
        worst_error: the largest of a row, in the unit of `TOLERANCES`.
        num_tokens_equal: rows whose most likely token is the reference's.
        num_tokens: rows that were compared.
    """

    num_cases: int
    worst_error: float
    num_tokens_equal: int
    num_tokens: int


class Verifier:
    """Runs graphs of a session against the reference.

    Args:
        session: the loaded graphs; its KV cache is used up.
        reference: the model.
        buckets: the graphs that exist.
        lengths: limits of requests.
        dtype: of the graphs.
        samples_greedily: whether they give tokens instead of logits.
        seed: of tokens and of the order of blocks.

    Attributes:
        tolerance: the largest error that passes, in the unit of `TOLERANCES`.
    """

    def __init__(
        self,
        session: Session,
        reference: Reference,
        buckets: BucketSet,
        lengths: Lengths,
        *,
        dtype: str,
        samples_greedily: bool = False,
        seed: int = 0,
    ) -> None:
        self._session = session
        self._buckets = buckets
        self._lengths = lengths
        self._dtype = dtype
        self.tolerance = TOLERANCES[dtype]
        self._compare: RowCheck = compare_token if samples_greedily else compare_logits
        self._vocab_size = reference.vocab_size
        self._random = random.Random(seed)
        self._caches = (*session.key_caches, *session.value_caches)
        for cache in self._caches:
            cache.fill_(math.nan)
        self._sequences = self._run_reference(reference)

    def verify(self, bucket: Bucket) -> Verdict:
        """Try one graph on all its cases.

        Raises:
            CompileError: it differs from the reference; names the graph, the case, the position.
        """
        errors = []
        num_equal = num_tokens = 0
        for case in self._cases(bucket):
            for row, (error, is_equal, what) in enumerate(self._try(bucket, case)):
                errors.append(error)
                num_tokens += 1
                num_equal += is_equal
                if not error <= self.tolerance:
                    raise self._fault(bucket, case, row, what)
                if self._dtype == "float32" and not is_equal:
                    raise self._fault(bucket, case, row, "another token is the most likely one")
        if not all(cache.isnan().all() for cache in self._caches):
            raise self._fault(bucket, case, 0, "a slot is written in a block of nobody's")
        return Verdict(len(self._cases(bucket)), max(errors), num_equal, num_tokens)

    def _cases(self, bucket: Bucket) -> list[Case]:
        if isinstance(bucket, PrefillBucket):
            return prefill_cases(bucket, self._buckets, self._lengths)
        return decode_cases(bucket, self._buckets, self._lengths)

    def _run_reference(self, reference: Reference) -> list[ReferenceSequence]:
        last_positions = sorted(
            {
                row.context_len - 1
                for bucket in self._buckets.all
                for case in self._cases(bucket)
                for row in case.rows
            }
        )
        length = last_positions[-1] + 1
        return [
            reference.run(self._random.choices(range(self._vocab_size), k=length), last_positions)
            for _ in range(_NUM_SEQUENCES)
        ]

    def _try(self, bucket: Bucket, case: Case) -> Iterator[RowError]:
        """Run a case, and yield for each row how far it is off, and whether the tokens agree."""
        sequences = [self._sequences[row % _NUM_SEQUENCES] for row in range(len(case.rows))]
        tables = self._block_tables(case)
        rows = [
            StepTokens(sequence.token_ids[row.start : row.context_len], row.start, table)
            for row, sequence, table in zip(case.rows, sequences, tables, strict=True)
        ]
        result = None
        for fill in self._paddings(bucket, rows):
            self._poison(tables)
            self._write_past(rows, sequences)
            written = self._session.execute(bucket, fill)[: len(rows)].clone()
            if result is not None and not torch.equal(written, result):
                raise self._fault(bucket, case, 0, "the ids of padded tokens change the result")
            result = written
        assert result is not None
        self._check_writes(bucket, case, rows, sequences)
        self._poison(tables)
        for row, sequence, given in zip(case.rows, sequences, result, strict=True):
            yield self._compare(given, sequence.logits[row.context_len - 1])

    def _block_tables(self, case: Case) -> list[list[int]]:
        """Return blocks for each row, in no order."""
        free = list(range(1, self._lengths.num_usable_blocks + 1))
        self._random.shuffle(free)
        sizes = [num_blocks_for(row.context_len, self._lengths.block_size) for row in case.rows]
        return [[free.pop() for _ in range(size)] for size in sizes]

    def _paddings(self, bucket: Bucket, rows: Sequence[StepTokens]) -> Iterator[GraphInputs]:
        """Yield the inputs of a call with several ids in the place of padded tokens."""
        size = self._lengths.block_size
        num_tokens = sum(len(row.token_ids) for row in rows)
        # Where little is padded, one id must do.
        for pad_token_id in (self._vocab_size - 1, 0, self._vocab_size // 2):
            if isinstance(bucket, PrefillBucket):
                length = self._lengths.max_model_len
                inputs = prefill_inputs(bucket, rows[0], max_model_len=length, block_size=size)
            else:
                inputs = decode_inputs(bucket, rows, block_size=size)
            inputs.input_ids[num_tokens:] = pad_token_id
            yield inputs
            if num_tokens * 2 > len(inputs.input_ids):
                return

    def _poison(self, tables: Sequence[Sequence[int]]) -> None:
        """Fill the blocks of a case, and the null block, with NaN; all others hold it already."""
        block_ids = torch.tensor([0, *(block for table in tables for block in table)])
        for cache in self._caches:
            cache.index_fill_(0, block_ids, math.nan)

    def _write_past(
        self, rows: Sequence[StepTokens], sequences: Sequence[ReferenceSequence]
    ) -> None:
        for row, sequence in zip(rows, sequences, strict=True):
            slots = torch.tensor(self._slots(row, range(row.num_computed_tokens)), dtype=torch.long)
            for cache, past in zip(self._caches, (*sequence.keys, *sequence.values), strict=True):
                cache.flatten(0, 1)[slots] = past[: len(slots)].to(cache.dtype)

    def _check_writes(
        self,
        bucket: Bucket,
        case: Case,
        rows: Sequence[StepTokens],
        sequences: Sequence[ReferenceSequence],
    ) -> None:
        """Look at every slot of the case's blocks: tokens' own hold their KV, all else is NaN."""
        blocks = torch.tensor([0, *(block for row in rows for block in row.block_ids)])
        slots, ends = [], [row.num_computed_tokens + len(row.token_ids) for row in rows]
        first = 1  # Of the blocks looked at, the null block is the first.
        for row, end in zip(rows, ends, strict=True):
            table = range(first, first + len(row.block_ids))
            slots += self._slots(replace(row, block_ids=table), range(end))
            first += len(row.block_ids)
        for layer, cache in enumerate(self._caches):
            found = cache[blocks].flatten(0, 1).float()
            given = found[slots]
            found[slots] = math.nan
            if not found.isnan().all():
                raise self._fault(bucket, case, 0, "a slot is written that is not the tokens' own")
            expected = torch.cat(
                [
                    (*sequence.keys, *sequence.values)[layer][:end]
                    for sequence, end in zip(sequences, ends, strict=True)
                ]
            )
            error = (rms(given - expected) / expected.std()).item()
            if not error <= self.tolerance:
                raise self._fault(bucket, case, 0, f"keys or values differ by {error:.3g} spreads")

    def _slots(self, row: StepTokens, positions: range) -> list[int]:
        size = self._lengths.block_size
        return [row.block_ids[p // size] * size + p % size for p in positions]

    def _fault(self, bucket: Bucket, case: Case, row: int, what: str) -> CompileError:
        position = case.rows[row].context_len - 1
        return CompileError(
            f"graph `{bucket.name}` is not what the model computes: {what}, "
            f"at position {position} of row {row} ({case.description})",
            hint="report it; `--no-verify` ships the artifact all the same",
        )
