"""The entries of a manifest: what each part of an artifact is. Knows no torch.

The last of them is the checksum of the manifest's own text, so that no byte of it goes unchecked:
the sha256 of the whole text with zeros in place of its 64 digits.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket

GRAPHS_DIR = "graphs"
NO_CHECKSUM = "0" * 64
_CHECKSUM_KEY = b'"checksum": "'
_TEXT_END = b'"\n}\n'
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""A number of things that there is at least one of; as large as an index tensor can say."""


class Entry(BaseModel):
    """Base of all: what is unknown is refused, and nothing changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(Entry):
    """One file: its path below the artifact, its content and its size."""

    path: str = Field(pattern=r"^[^\x00]+$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class TensorEntry(Entry):
    """An index tensor of a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class ConstantEntry(Entry):
    """A weight that a graph reads, see `neuron_llm.backends.graph.spec.ConstantSpec`."""

    name: str
    weight: str
    shape: tuple[int, ...]
    dtype: str
    parts: tuple[str, ...]
    layout: Literal["plain", "packed"]


class VerificationEntry(Entry):
    """What verifying a graph found, see `neuron_llm.compile.verify.verification.Verdict`."""

    num_cases: Count
    worst_error: float = Field(ge=0, allow_inf_nan=False)
    tolerance: float = Field(gt=0, allow_inf_nan=False)
    num_tokens_equal: int = Field(ge=0)
    num_tokens: Count


class GraphEntry(Entry):
    """One graph: its bucket, its tensors, its files, what building it took, what verifying found.

    A graph without `verification` was not verified.
    """

    name: str
    num_tokens: Count | None = None
    batch_size: Count | None = None
    max_context_tokens: Count | None = None
    inputs: tuple[TensorEntry, ...]
    constants: tuple[ConstantEntry, ...]
    files: tuple[FileEntry, ...]
    graph_key: str
    compile_seconds: float = Field(ge=0, allow_inf_nan=False)
    verification: VerificationEntry | None = None

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        is_prefill = self.num_tokens is not None
        of_decode = [self.batch_size is not None, self.max_context_tokens is not None]
        if of_decode != [not is_prefill] * 2:
            raise ValueError("a graph has `num_tokens`, or `batch_size` and `max_context_tokens`")
        if self.name != self.bucket.name:
            raise ValueError(f"`{self.name}` is not the name of its bucket, `{self.bucket.name}`")
        return self

    @property
    def bucket(self) -> Bucket:
        """The bucket that the graph was compiled for."""
        if self.num_tokens is not None:
            return PrefillBucket(self.num_tokens)
        assert self.batch_size is not None and self.max_context_tokens is not None
        return DecodeBucket(self.batch_size, self.max_context_tokens)

    @property
    def directory(self) -> str:
        """The graph's folder below the artifact."""
        return f"{GRAPHS_DIR}/{self.name}"


class RuntimeSettings(Entry):
    """What the scheduler and the runner need to know; resolved, nothing is left to defaults.

    `samples_greedily`, whether graphs give tokens instead of logits, is written only if they do:
    the manifests of all others, and their ids, are what they were before it came to be.
    """

    dtype: Literal["float32", "bfloat16", "float16"]
    max_model_len: Count
    max_num_seqs: Count
    max_num_batched_tokens: Count
    block_size: Count
    num_blocks: Count
    enable_prefix_caching: bool
    async_scheduling: bool
    kv_admission: Literal["reserve", "max_model_len"]
    max_consecutive_prefills: Count | None
    samples_greedily: bool = False

    @model_serializer(mode="wrap")
    def _without_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        if not self.samples_greedily:
            del fields["samples_greedily"]
        return fields


class ModelEntry(Entry):
    """The model's sizes, as far as running it needs them."""

    model_type: str
    num_layers: Count
    num_kv_heads: Count
    head_dim: Count
    vocab_size: Count
    revision: str | None = None


class WeightsEntry(Entry):
    """The one weights file, and the tied names that it stores once."""

    file: FileEntry
    aliases: dict[str, str]


class GoldenEntry(Entry):
    """The self-test at load: a prompt, and the most likely token of each call of a graph."""

    prompt_token_ids: tuple[int, ...] = Field(min_length=1)
    tokens: dict[str, int] = Field(min_length=1)


def sealed(text: bytes) -> bytes:
    """Return a manifest's text with its checksum; it ends with the key and any 64 digits."""
    head, digits = _split_checksum(text)
    assert len(digits) == len(NO_CHECKSUM), "the checksum is the last value of a manifest"
    digest = hashlib.sha256(head + NO_CHECKSUM.encode() + _TEXT_END).hexdigest()
    return head + digest.encode() + _TEXT_END


def is_sealed(text: bytes) -> bool:
    """Whether a text has its own checksum, byte for byte."""
    _, digits = _split_checksum(text)
    return len(digits) == len(NO_CHECKSUM) and sealed(text) == text


def _split_checksum(text: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the digits, and the digits; none where they do not belong."""
    start = len(text) - len(_TEXT_END) - len(NO_CHECKSUM)
    if start < 0 or not text.endswith(_TEXT_END) or not text[:start].endswith(_CHECKSUM_KEY):
        return text, b""
    return text[:start], text[start : -len(_TEXT_END)]
