from pathlib import Path

import pytest
from config_factory import faults, load, plan, write_model

from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.errors import ConfigError

NEURON = "backend: neuron\n"


def test_tokens_buckets_must_ascend(tmp_path: Path) -> None:
    text = "max_num_batched_tokens: 128\nneuron_config:\n  num_batched_tokens_buckets: [128, 64]\n"
    assert faults(tmp_path, text) == [
        "4: neuron_config.num_batched_tokens_buckets: [128, 64] must ascend strictly;"
        " write [64, 128]"
    ]


@pytest.mark.parametrize(
    ("key", "buckets", "fixed"),
    [
        ("num_batched_tokens_buckets", "[256, 256, 512]", "[256, 512]"),
        ("num_seqs_buckets", "[4, 2, 8]", "[2, 4, 8]"),
        ("decode_context_length_buckets", "[256, 128]", "[128, 256]"),
    ],
)
def test_every_ladder_must_ascend_without_repeats(
    tmp_path: Path, key: str, buckets: str, fixed: str
) -> None:
    text = f"max_num_batched_tokens: 512\nneuron_config:\n  {key}: {buckets}\n"
    assert faults(tmp_path, text) == [
        f"4: neuron_config.{key}: {buckets} must ascend strictly; write {fixed}"
    ]


@pytest.mark.parametrize(
    ("buckets", "fixed"),
    [("[128, 256]", "[128, 256, 512]"), ("[128, 1024]", "[128, 512]"), ("[1024]", "[512]")],
)
def test_last_tokens_bucket_is_the_budget(tmp_path: Path, buckets: str, fixed: str) -> None:
    text = (
        "max_num_batched_tokens: 512\nmax_model_len: 2048\n"
        f"neuron_config:\n  num_batched_tokens_buckets: {buckets}\n"
    )
    assert faults(tmp_path, text) == [
        f"5: neuron_config.num_batched_tokens_buckets: {buckets} must end in 512, the smaller of"
        f" `max_num_batched_tokens` (512) and `max_model_len` (2048); write {fixed}"
    ]


def test_last_tokens_bucket_is_max_model_len_where_that_is_smaller(tmp_path: Path) -> None:
    text = "max_model_len: 100\nneuron_config:\n  num_batched_tokens_buckets: [64, 128]\n"
    (fault,) = faults(tmp_path, text)
    assert "[64, 128] must end in 100, the smaller of" in fault
    assert fault.endswith("write [64, 100]")


def test_last_tokens_bucket_follows_the_models_positions(tmp_path: Path) -> None:
    write_model(tmp_path / "model", max_position_embeddings=300)
    (fault,) = faults(tmp_path, "neuron_config:\n  num_batched_tokens_buckets: [128, 2048]\n")
    assert "must end in 300" in fault


def test_last_seqs_bucket_is_max_num_seqs(tmp_path: Path) -> None:
    text = "max_num_seqs: 6\nneuron_config:\n  num_seqs_buckets: [1, 2, 4]\n"
    assert faults(tmp_path, text) == [
        "4: neuron_config.num_seqs_buckets: [1, 2, 4] must end in 6, `max_num_seqs`;"
        " write [1, 2, 4, 6]"
    ]


def test_unsorted_list_with_the_right_maximum_is_one_fault(tmp_path: Path) -> None:
    text = "neuron_config:\n  num_seqs_buckets: [8, 4]\n"
    assert len(faults(tmp_path, text)) == 1


def test_context_buckets_are_multiples_of_128(tmp_path: Path) -> None:
    text = "neuron_config:\n  decode_context_length_buckets: [100, 256]\n"
    assert faults(tmp_path, text) == [
        "3: neuron_config.decode_context_length_buckets[0]: 100 must be a multiple of 128;"
        " write 128 or remove it"
    ]


@pytest.mark.parametrize("bucket", [1024, 1152])
def test_context_buckets_are_shorter_than_max_model_len(tmp_path: Path, bucket: int) -> None:
    text = (
        f"max_model_len: 1024\nneuron_config:\n  decode_context_length_buckets: [128, {bucket}]\n"
    )
    assert faults(tmp_path, text) == [
        f"4: neuron_config.decode_context_length_buckets[1]: {bucket} must be less than"
        " `max_model_len` (1024), whose graph is compiled anyway; remove it"
    ]


def test_max_model_len_is_within_the_models_positions(tmp_path: Path) -> None:
    assert faults(tmp_path, "max_model_len: 4097\n") == [
        "2: max_model_len: 4097 must be at most 4096, the positions the model knows"
        " (`max_position_embeddings`); write 4096 or less"
    ]
    assert plan(tmp_path, "max_model_len: 4096\n").max_model_len == 4096


def test_dtype_of_the_checkpoint_must_be_one_that_graphs_compute_in(tmp_path: Path) -> None:
    write_model(tmp_path / "model", torch_dtype="float64")
    assert faults(tmp_path, "dtype: auto\n") == [
        "2: dtype: `auto` is the checkpoint's `float64`, which graphs do not compute in;"
        " write one of `float32`, `bfloat16` and `float16`"
    ]
    assert plan(tmp_path, "dtype: float32\n").dtype == "float32"


def test_quantization_is_refused_not_ignored(tmp_path: Path) -> None:
    assert faults(tmp_path, "quantization: int8\n") == [
        "2: quantization: int8 is not available in this version; remove the key"
    ]


def test_two_bounds_on_the_kv_cache_are_one_too_many(tmp_path: Path) -> None:
    text = "kv_cache_memory: 1GiB\nnum_gpu_blocks_override: 512\n"
    assert faults(tmp_path, text) == [
        "3: num_gpu_blocks_override: 512 and `kv_cache_memory` (1GiB) both set the number of"
        " blocks; remove one of them"
    ]


def test_too_few_blocks_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    # ceil(64 / 4) = 16 blocks and the null block.
    text = "max_model_len: 64\nblock_size: 4\nnum_gpu_blocks_override: {}\n"
    assert faults(tmp_path, text.format(16)) == [
        "4: num_gpu_blocks_override: 16 KV blocks cannot hold one request of `max_model_len` (64),"
        " which needs 17 blocks of 4 tokens, the null block included; write 17, or lower"
        " `max_model_len`"
    ]
    assert plan(tmp_path, text.format(17)).num_blocks == 17


def test_too_little_memory_is_refused_with_the_size_needed(tmp_path: Path) -> None:
    # A block of 32 tokens takes 16 KiB; 4096 tokens take 128 blocks and the null block.
    assert faults(tmp_path, "kv_cache_memory: 2MiB\n") == [
        "2: kv_cache_memory: 128 KV blocks cannot hold one request of `max_model_len` (4096),"
        " which needs 129 blocks of 32 tokens, the null block included; write `3MiB`, or lower"
        " `max_model_len`"
    ]
    assert plan(tmp_path, "kv_cache_memory: 3MiB\n").num_blocks == 192


def test_slots_must_fit_into_32_bits(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "max_num_seqs: 2147483647\n")
    assert fault.startswith("2: max_num_seqs: ")
    assert "32-bit indices" in fault


def test_neuron_needs_its_target(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, NEURON)
    assert fault.startswith("2: backend: neuron needs `neuron_config.target`, whose memory")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target", "trn2"),
        ("logical_nc_config", "1"),
        ("kv_segment_size_buckets", "[512]"),
        ("compiler_args", '["-O1"]'),
        ("binding", "trace"),
        ("on_device_sampling_config", "{all_greedy: true}"),
    ],
)
def test_neuron_keys_are_not_ignored_on_the_cpu(tmp_path: Path, key: str, value: str) -> None:
    (fault,) = faults(tmp_path, f"neuron_config:\n  {key}: {value}\n")
    assert fault.startswith(f"3: neuron_config.{key}: ")
    assert fault.endswith("is for `backend: neuron`, and the backend is `cpu`; remove the key")


def test_neuron_keys_at_their_defaults_do_no_harm_on_the_cpu(tmp_path: Path) -> None:
    assert plan(tmp_path, "neuron_config:\n  binding: auto\n  target: null\n").neuron is None


def test_cores_of_old_targets_are_not_joined(tmp_path: Path) -> None:
    text = NEURON + "neuron_config:\n  target: inf2\n  logical_nc_config: 2\n"
    assert faults(tmp_path, text) == [
        "5: neuron_config.logical_nc_config: 2 must be 1 for `target: inf2`, whose cores are not"
        " joined; write 1"
    ]


def test_kv_segments_are_whole_blocks_within_the_context(tmp_path: Path) -> None:
    text = (
        NEURON + "max_model_len: 1024\nblock_size: 32\n"
        "neuron_config:\n  target: trn2\n  kv_segment_size_buckets: [100, 512, 2048]\n"
    )
    assert faults(tmp_path, text) == [
        "7: neuron_config.kv_segment_size_buckets[0]: 100 must be a multiple of `block_size` (32):"
        " a segment consists of whole blocks; change one of the two",
        "7: neuron_config.kv_segment_size_buckets[2]: 2048 must be at most `max_model_len` (1024);"
        " remove it",
    ]


def test_several_buckets_of_prefill_work_with_one_segment_size(tmp_path: Path) -> None:
    text = (
        NEURON + "max_num_batched_tokens: 2048\nneuron_config:\n  target: trn2\n"
        "  num_batched_tokens_buckets: [512, 1024, 2048]\n  kv_segment_size_buckets: [2048]\n"
    )
    planned = plan(tmp_path, text)
    assert planned.buckets.num_batched_tokens_buckets == [512, 1024, 2048]
    assert planned.neuron is not None
    assert planned.neuron.kv_segment_size_buckets == (2048,)


def test_rules_do_not_judge_values_that_nobody_wrote(tmp_path: Path) -> None:
    # With the default of 8 in the place of "six", the buckets would seem to be wrong as well.
    text = "max_num_seqs: six\nneuron_config:\n  num_seqs_buckets: [1, 6]\n"
    assert len(faults(tmp_path, text)) == 1


def test_wrong_neuron_config_as_a_whole_is_one_fault(tmp_path: Path) -> None:
    assert len(faults(tmp_path, NEURON + "neuron_config: [trn2]\n")) == 1


def test_rules_of_a_model_read_later_are_faults_with_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "hub.yaml"
    path.write_text("model: owner/name\nrevision: main\nmax_model_len: 5000\n")
    model = load(tmp_path).model_spec
    assert model is not None
    with pytest.raises(ConfigError) as caught:
        plan_compile(load_config(path), model)
    assert caught.value.faults[0].startswith(f"{path}:3: max_model_len: 5000 must be at most 4096")
