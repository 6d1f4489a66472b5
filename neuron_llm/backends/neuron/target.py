"""What a Neuron graph is compiled for, and by which arguments of the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neuron_llm.backends.neuron.generations import GENERATIONS
from neuron_llm.scheduler.buckets import Bucket, PrefillBucket

Binding = Literal["trace", "model_builder"]
"""How graphs get at weights and KV state: each has its own, or all share them."""
MODEL_BUILDER: Binding = "model_builder"

# Of the compiler's documented options those that suit a decoder; float32 stays float32.
_DEFAULT_ARGUMENTS = ("--model-type=transformer", "--auto-cast=none", "-O1")
# Other spellings of the options among the defaults.
_OPTION_NAMES = {
    "-O": "--optlevel",
    "-lnc": "--logical-nc-config",
    "--lnc": "--logical-nc-config",
}


@dataclass(frozen=True)
class NeuronTarget:
    """The choices that are the Neuron backend's own.

    Attributes:
        target: the device generation, such as `trn2`.
        logical_nc_config: physical cores in one logical core.
        kv_segment_size_buckets: tokens of KV that a prefill graph reads at a time; empty for all.
        compiler_args: handed to neuronx-cc after the defaults that they do not replace.
        binding: how graphs get at weights and KV state.
        samples_greedily: whether graphs give the most likely token instead of logits.
    """

    target: str
    logical_nc_config: int
    kv_segment_size_buckets: tuple[int, ...] = ()
    compiler_args: tuple[str, ...] = ()
    binding: Binding = "trace"
    samples_greedily: bool = False

    def segment_tokens(self, bucket: Bucket) -> int | None:
        """Return how many keys a bucket's graph reads at a time, or None for all.

        For a prefill it is the smallest segment that is as long as the chunk, or else the largest.
        With segments of 512 and 2048, a prefill of 1024 reads 2048 at a time, one of 4096 too. A
        decode has one query for each row: its scores are small whatever the context.
        """
        segments = self.kv_segment_size_buckets
        if not segments or not isinstance(bucket, PrefillBucket):
            return None
        return next((size for size in segments if size >= bucket.num_tokens), segments[-1])

    def compiler_arguments(self) -> list[str]:
        """Return the arguments of neuronx-cc that do not name files."""
        own = ["--target", self.target]
        if GENERATIONS[self.target].joins_cores:
            own.append(f"--logical-nc-config={self.logical_nc_config}")
        given = {option_name(argument) for argument in self.compiler_args}
        defaults = [a for a in _DEFAULT_ARGUMENTS if option_name(a) not in given]
        return [*own, *defaults, *self.compiler_args]


def option_name(argument: str) -> str:
    """Return which option an argument sets: `-O2` and `--optlevel=2` are both `--optlevel`."""
    name = argument.partition("=")[0]
    if name.startswith("-O"):
        name = "-O"
    return _OPTION_NAMES.get(name, name)
