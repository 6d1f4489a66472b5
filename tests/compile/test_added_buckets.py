"""Buckets that a command line adds to those of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import write_config

from neuron_llm.compile.added_buckets import with_added_buckets
from neuron_llm.compile.config.file import LoadedConfig, load_config
from neuron_llm.compile.plan.plan import CompilePlan, plan_compile
from neuron_llm.errors import ConfigError

LIMITS = "max_model_len: 512\nblock_size: 4\nmax_num_batched_tokens: 256\nmax_num_seqs: 6\n"
CONTEXTS = LIMITS + "neuron_config:\n  decode_context_length_buckets: [128]\n"


def planned(loaded: LoadedConfig) -> CompilePlan:
    assert loaded.model_spec is not None
    return plan_compile(loaded, loaded.model_spec)


def added(directory: Path, limits: str, *buckets: str) -> tuple[list[str], LoadedConfig]:
    """Return the names of the graphs that are more, and the configuration that has them."""
    loaded = load_config(write_config(directory, limits))
    before = planned(loaded)
    extended = with_added_buckets(loaded, before, buckets)
    after = planned(extended)
    names = [bucket.name for bucket in after.buckets.all if bucket not in before.buckets.all]
    assert set(before.buckets.all) <= set(after.buckets.all)
    return names, extended


@pytest.mark.parametrize(
    ("limits", "buckets", "names"),
    [
        (LIMITS, ["prefill:32"], ["prefill_t32"]),
        (LIMITS, ["decode:3"], ["decode_b3_c512"]),
        (LIMITS, ["decode:3x512"], ["decode_b3_c512"]),
        (LIMITS, ["prefill:32", "prefill:64"], ["prefill_t32", "prefill_t64"]),
        (CONTEXTS, ["decode:3"], ["decode_b3_c128", "decode_b3_c512"]),
        (CONTEXTS, ["decode:2x256"], [f"decode_b{n}_c256" for n in (1, 2, 4, 6)]),
        (LIMITS, ["prefill:256", "decode:4"], []),
    ],
)
def test_a_bucket_is_added_to_those_that_are_planned(
    limits: str, buckets: list[str], names: list[str], tmp_path: Path
) -> None:
    assert added(tmp_path, limits, *buckets)[0] == names


def test_the_configuration_says_it_as_a_file_would(tmp_path: Path) -> None:
    _, extended = added(tmp_path, LIMITS, "prefill:32", "decode:3")
    lists = "  num_batched_tokens_buckets: [32, 128, 256]\n  num_seqs_buckets: [1, 2, 3, 4, 6]\n"
    written = load_config(write_config(tmp_path, f"{LIMITS}neuron_config:\n{lists}"))
    assert extended.config == written.config


@pytest.mark.parametrize(
    ("bucket", "reason"),
    [
        ("prefill:512", r"`prefill:512` is larger than the largest prefill chunk \(256\)"),
        ("decode:7", r"`decode:7` is larger than `max_num_seqs` \(6\)"),
        ("decode:2x100", "must be a multiple of 128 below `max_model_len`"),
        ("decode:2x640", "must be a multiple of 128 below `max_model_len`"),
        ("prefill:0", "is no bucket"),
        ("prefill:8x8", "is no bucket"),
        ("prefill: 8", "is no bucket"),
        ("decode:", "is no bucket"),
        ("", "is no bucket"),
    ],
)
def test_a_bucket_that_makes_no_sense_is_refused(bucket: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        added(tmp_path, LIMITS, bucket)
    assert caught.value.hint is not None
