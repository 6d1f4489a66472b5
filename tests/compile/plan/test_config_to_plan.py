"""From the text of a file to a plan: whatever stands in it, the outcome is a plan or faults."""

import dataclasses
import json
from pathlib import Path

import pytest
from config_factory import plan, write_config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuron_llm.compile.config.config import Config, NeuronConfig
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.errors import ConfigError
from neuron_llm.scheduler.policy.coverage import check_coverage

EVERY_KEY = """
backend: cpu
dtype: bfloat16
max_model_len: 2048
max_num_seqs: 8
max_num_batched_tokens: 512
block_size: 32
enable_prefix_caching: true
async_scheduling: true
kv_admission: reserve                      # reserve | max_model_len
max_consecutive_prefills: null
quantization: null
kv_cache_memory: auto
neuron_config:
  num_batched_tokens_buckets: [128, 256, 512]
  num_seqs_buckets: [1, 2, 4, 8]
  decode_context_length_buckets: [512, 1024]
  # target: trn2
"""

_VALUES = st.sampled_from(
    [
        *("1", "2", "3", "8", "16", "64", "100", "512", "4096", "2147483647", "99999999999", "-1"),
        *("true", "false", "null", "", "auto", "1.5", "int8", "reserve", "max_model_len", "neuron"),
        *("cpu", "trn2", "inf2", "float16", "bfloat16", "model", "1MiB", "1GiB", "3TiB", "0GiB"),
        *("[1]", "[]", "[1, 2]", "[2, 1]", "[128, 2048]", "[128, 256]", "[512]", "[[1]]", "{}"),
        *("{a: 1}", "{all_greedy: true}", "[", "'", "&a 1", "*a", "!!int 1", "- 1", "a: b"),
    ]
)
_LINES = st.lists(
    st.tuples(st.sampled_from([*Config.model_fields, "unknown"]), _VALUES), max_size=6
)
_NEURON_LINES = st.lists(
    st.tuples(st.sampled_from([*NeuronConfig.model_fields, "unknown"]), _VALUES), max_size=4
)


def test_file_with_every_key_is_planned(tmp_path: Path) -> None:
    planned = plan(tmp_path, EVERY_KEY)
    assert planned.async_scheduling
    assert planned.num_blocks == 513
    assert [bucket.name for bucket in planned.buckets.prefill] == [
        "prefill_t128",
        "prefill_t256",
        "prefill_t512",
    ]
    assert len(planned.buckets.decode) == 4 * 3
    assert planned.warnings == ()


@pytest.mark.filterwarnings("error")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_LINES, _NEURON_LINES)
def test_any_file_gives_a_plan_or_faults(
    tmp_path: Path, lines: list[tuple[str, str]], neuron_lines: list[tuple[str, str]]
) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in lines)
    if neuron_lines:
        text += "neuron_config:\n"
        text += "".join(f"  {key}: {value}\n" for key, value in neuron_lines)
    path = write_config(tmp_path, text)
    try:
        loaded = load_config(path)
        assert loaded.model_spec is not None
        planned = plan_compile(loaded, loaded.model_spec)
    except ConfigError as error:
        assert error.faults
        for fault in error.faults:
            assert fault.startswith(str(path))
            assert "\n" not in fault
            assert len(fault) < len(str(path)) + 600
        return
    json.dumps(dataclasses.asdict(planned))
    assert check_coverage(planned.buckets, planned.shapes) == ()
    assert planned.kv_cache.num_blocks >= planned.kv_cache.needed_num_blocks
    assert planned.buckets.num_batched_tokens_buckets[-1] <= planned.max_num_batched_tokens
    assert planned.buckets.num_seqs_buckets[-1] <= planned.max_num_seqs
