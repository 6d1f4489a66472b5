import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from config_factory import faults, load, plan, write_config, write_model

from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.errors import ConfigError, NoBucketError
from neuron_llm.scheduler.buckets import DecodeBucket, PrefillBucket
from neuron_llm.scheduler.policy.coverage import check_coverage

TINY = "max_model_len: 64\nblock_size: 4\nmax_num_batched_tokens: 16\nmax_num_seqs: 4\n"


def test_every_value_is_resolved(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    assert planned.name == "tiny"
    assert planned.backend == "cpu"
    assert planned.dtype == "float32"
    assert planned.max_model_len == 4096
    assert planned.max_num_seqs == 8
    assert planned.max_num_batched_tokens == 2048
    assert planned.block_size == 32
    assert planned.num_blocks == 8 * 128 + 1
    assert planned.neuron is None
    assert planned.warnings == ()


def test_token_budget_is_at_most_max_model_len(tmp_path: Path) -> None:
    planned = plan(tmp_path, "max_model_len: 100\nmax_num_batched_tokens: 512\n")
    assert planned.max_num_batched_tokens == 100
    assert planned.buckets.prefill == (PrefillBucket(100),)


def test_buckets_are_those_of_the_file(tmp_path: Path) -> None:
    text = (
        TINY + "neuron_config:\n  num_batched_tokens_buckets: [8, 16]\n  num_seqs_buckets: [1, 4]\n"
    )
    buckets = plan(tmp_path, text).buckets
    assert buckets.prefill == (PrefillBucket(8), PrefillBucket(16))
    assert buckets.decode == (DecodeBucket(1, 64), DecodeBucket(4, 64))


def test_default_buckets_end_in_the_maxima(tmp_path: Path) -> None:
    buckets = plan(tmp_path, "max_num_batched_tokens: 3000\nmax_num_seqs: 6\n").buckets
    assert buckets.num_batched_tokens_buckets == [128, 256, 512, 1024, 2048, 3000]
    assert buckets.num_seqs_buckets == [1, 2, 4, 6]


def test_budget_off_every_grid_is_the_last_bucket(tmp_path: Path) -> None:
    buckets = plan(tmp_path, "max_num_batched_tokens: 13\n").buckets
    assert buckets.num_batched_tokens_buckets == [13]


def test_full_length_is_compiled_beside_the_context_buckets(tmp_path: Path) -> None:
    text = (
        "max_model_len: 1000\nmax_num_seqs: 2\n"
        "neuron_config:\n  decode_context_length_buckets: [128, 512]\n"
    )
    assert plan(tmp_path, text).buckets.decode == (
        DecodeBucket(1, 128),
        DecodeBucket(1, 512),
        DecodeBucket(1, 1000),
        DecodeBucket(2, 128),
        DecodeBucket(2, 512),
        DecodeBucket(2, 1000),
    )


def test_prefill_budget_has_no_say_in_the_decode_buckets(tmp_path: Path) -> None:
    planned = plan(tmp_path, "max_num_batched_tokens: 2\nmax_num_seqs: 4\n")
    assert planned.buckets.num_batched_tokens_buckets == [2]
    assert planned.buckets.num_seqs_buckets == [1, 2, 4]
    assert planned.buckets.pick_decode_bucket(4, 100) == DecodeBucket(4, 4096)


def test_one_request_takes_one_row(tmp_path: Path) -> None:
    buckets = plan(tmp_path, TINY).buckets
    assert buckets.pick_decode_bucket(1, 10) == DecodeBucket(1, 64)
    assert buckets.pick_decode_bucket(3, 10) == DecodeBucket(4, 64)


def test_more_rows_than_blocks_are_not_compiled_and_reported(tmp_path: Path) -> None:
    # Two usable blocks: two requests can hold one each.
    text = (
        "max_model_len: 8\nblock_size: 4\nmax_num_batched_tokens: 8\nmax_num_seqs: 4\n"
        "num_gpu_blocks_override: 3\n"
    )
    planned = plan(tmp_path, text)
    assert planned.buckets.num_seqs_buckets == [1, 2]
    assert [dropped.bucket for dropped in planned.unreachable] == [DecodeBucket(4, 8)]
    reason = "no decode step has more than 2 requests, which 2 already holds"
    assert planned.unreachable[0].reason == reason
    assert f"decode_b4_c8 is not compiled: {reason}" in planned.warnings


def test_room_for_five_requests_still_needs_eight_rows(tmp_path: Path) -> None:
    text = (
        "max_model_len: 64\nblock_size: 32\nmax_num_seqs: 8\nkv_admission: {}\n"
        "num_gpu_blocks_override: {}\n"
    )
    # A request of full length takes 2 blocks.
    five = plan(tmp_path, text.format("max_model_len", 11))
    assert five.shapes.max_decode_seqs == 5
    assert five.buckets.num_seqs_buckets == [1, 2, 4, 8]
    four = plan(tmp_path, text.format("max_model_len", 10))
    assert four.buckets.num_seqs_buckets == [1, 2, 4]
    # Requests that reserve what they need can be five with the same blocks.
    assert plan(tmp_path, text.format("reserve", 10)).shapes.max_decode_seqs == 8


def test_prefill_buckets_always_end_in_the_budget(tmp_path: Path) -> None:
    # Although the longest prompt has 63 tokens: the scheduler counts on a bucket for its budget.
    text = (
        "max_model_len: 64\nmax_num_batched_tokens: 64\n"
        "neuron_config:\n  num_batched_tokens_buckets: [63, 64]\n"
    )
    assert plan(tmp_path, text).buckets.num_batched_tokens_buckets == [63, 64]


@pytest.mark.parametrize("max_model_len", [2, 3, 4, 64])
def test_every_shape_that_can_occur_has_a_bucket(tmp_path: Path, max_model_len: int) -> None:
    for blocks in (1, 2, 5, 40):
        num_blocks = -(-max_model_len // 4) + blocks
        text = (
            f"max_model_len: {max_model_len}\nblock_size: 4\nnum_gpu_blocks_override: {num_blocks}"
        )
        planned = plan(tmp_path, text)
        assert check_coverage(planned.buckets, planned.shapes) == ()
        for num_tokens in range(1, planned.shapes.max_chunk_tokens + 1):
            picked = planned.buckets.pick_prefill_bucket(num_tokens)
            assert num_tokens <= picked.num_tokens <= planned.max_num_batched_tokens
        for num_seqs in range(1, planned.shapes.max_decode_seqs + 1):
            row = planned.buckets.pick_decode_bucket(num_seqs, max_model_len)
            assert num_seqs <= row.batch_size <= planned.max_num_seqs


def test_context_of_the_longest_request_has_a_bucket_and_one_more_has_none(tmp_path: Path) -> None:
    buckets = plan(tmp_path, TINY).buckets
    assert buckets.pick_decode_bucket(1, 64) == DecodeBucket(1, 64)
    with pytest.raises(NoBucketError):
        buckets.pick_decode_bucket(1, 65)


def test_blocks_are_derived_without_any_setting(tmp_path: Path) -> None:
    planned = plan(tmp_path, TINY)
    assert planned.num_blocks == 4 * 16 + 1
    assert planned.kv_cache.num_usable_blocks == 64


def test_kv_size_comes_with_the_inputs_of_its_formula(tmp_path: Path) -> None:
    memory = plan(tmp_path, TINY).memory
    assert memory.kv_cache_bytes == 65 * 4 * 512
    assert memory.kv_cache_formula.startswith("65 blocks (1 of them the null block) x 4 tokens x 2")


def test_fewer_blocks_than_the_requests_may_need_is_a_warning(tmp_path: Path) -> None:
    planned = plan(tmp_path, TINY + "num_gpu_blocks_override: 33\n")
    assert planned.warnings == (
        "33 KV blocks (`num_gpu_blocks_override`) hold 2 of `max_num_seqs` (4) requests of full"
        " length; all of them need 65",
    )


def test_prefix_caching_that_cannot_hit_is_a_warning(tmp_path: Path) -> None:
    text = "max_model_len: 64\nblock_size: {}\n"
    # The longest prompt has 63 tokens and its last one is always computed.
    assert plan(tmp_path, text.format(62)).warnings == ()
    (warning,) = plan(tmp_path, text.format(63)).warnings
    assert warning == (
        "prefix caching cannot hit: no prompt (at most 63 tokens) spans a full block of 63 tokens"
        " and one more; lower `block_size`"
    )
    off = text.format(64) + "enable_prefix_caching: false\n"
    assert plan(tmp_path, off).warnings == ()


def test_block_as_large_as_a_prefill_step_is_a_warning(tmp_path: Path) -> None:
    text = "max_num_batched_tokens: 128\nblock_size: {}\n"
    assert plan(tmp_path, text.format(127)).warnings == ()
    (warning,) = plan(tmp_path, text.format(128)).warnings
    assert warning.startswith("prefix caching hits only prompts of more than 128 tokens")


def test_neuron_settings_are_resolved(tmp_path: Path) -> None:
    text = (
        "backend: neuron\nneuron_config:\n  target: trn2\n  compiler_args: [-O1]\n"
        "  on_device_sampling_config: {all_greedy: true}\n"
    )
    neuron = plan(tmp_path, text).neuron
    assert neuron is not None
    assert dataclasses.asdict(neuron) == {
        "target": "trn2",
        "logical_nc_config": 2,
        "kv_segment_size_buckets": (),
        "compiler_args": ("-O1",),
        "binding": "trace",
        "on_device_sampling": {"all_greedy": True, "max_top_k": 256, "deterministic": False},
    }


def test_weights_that_leave_no_room_for_one_request_are_refused(tmp_path: Path) -> None:
    write_model(
        tmp_path / "model",
        num_hidden_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=14336,
        vocab_size=128256,
        torch_dtype="bfloat16",
    )
    neuron = "backend: neuron\nneuron_config:\n  target: "
    # 14.0 GiB of weights leave 0.4 of 14.4 GiB; a block of 32 tokens takes 4 MiB.
    assert faults(tmp_path, neuron + "inf2\n") == [
        "4: neuron_config.target: 107 KV blocks cannot hold one request of `max_model_len` (4096),"
        " which needs 129 blocks of 32 tokens, the null block included; of the 14.4 GiB to use, a"
        " logical core of inf2 has 431.6 MiB for them beside 13.98 GiB of weights, and they take"
        " 516 MiB; lower `max_model_len`, or give a smaller model"
    ]
    # A logical core of trn2 has room for one copy, and every graph needs its own.
    loaded = load(tmp_path, neuron + "trn2\n")
    assert loaded.model_spec is not None
    with pytest.raises(ConfigError) as caught:
        plan_compile(loaded, loaded.model_spec)
    assert "graphs (weights, " in caught.value.faults[0]


def test_activations_that_overflow_the_device_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model", num_attention_heads=512, max_position_embeddings=65536)
    text = (
        "backend: neuron\nmax_num_batched_tokens: 65536\nmax_num_seqs: 1\n"
        "neuron_config:\n  target: inf2\n"
    )
    loaded = load(tmp_path, text)
    assert loaded.model_spec is not None
    with pytest.raises(ConfigError) as caught:
        plan_compile(loaded, loaded.model_spec)
    (fault,) = caught.value.faults
    assert "(activations of prefill_t65536 " in fault
    # Reading the keys in segments is the way out that segments are for.
    plan(tmp_path, text.replace("65536\n", "2048\n") + "  kv_segment_size_buckets: [2048]\n")


def test_plan_is_json_after_asdict(tmp_path: Path) -> None:
    planned = plan(tmp_path, TINY + "num_gpu_blocks_override: 18\n")
    content = json.loads(json.dumps(dataclasses.asdict(planned)))
    assert content["num_blocks"] == 18
    assert content["buckets"]["decode"][0] == {"batch_size": 1, "max_context_tokens": 64}
    assert content["model"]["model_type"] == "llama"


def test_plan_is_the_same_wherever_and_whenever_it_is_made(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    assert plan(places[0], TINY) == plan(places[1], TINY)


def test_planning_imports_no_torch(tmp_path: Path) -> None:
    path = write_config(tmp_path, TINY)
    code = (
        "import sys; from pathlib import Path\n"
        "from neuron_llm.compile.config.file import load_config\n"
        "from neuron_llm.compile.plan.plan import plan_compile\n"
        f"loaded = load_config(Path({str(path)!r}))\n"
        "plan_compile(loaded, loaded.model_spec)\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_model_read_later_is_planned_like_a_local_one(tmp_path: Path) -> None:
    local = load(tmp_path, TINY)
    path = tmp_path / "tiny.yaml"
    path.write_text(f"model: owner/name\nrevision: main\n{TINY}")
    assert local.model_spec is not None
    assert plan_compile(load_config(path), local.model_spec) == plan_compile(
        local, local.model_spec
    )


def test_spec_without_weights_is_enough(tmp_path: Path) -> None:
    planned = plan(tmp_path, TINY)
    assert not planned.model.has_exact_num_parameters
    assert planned.memory.weights_bytes == 4 * planned.model.num_parameters
