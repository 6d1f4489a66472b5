import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from config_factory import TINY_CONFIG, write_model
from safetensors.numpy import save_file

from neuron_llm.compile.model.model_spec import ModelSpec, read_model_spec, spec_from_config
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError


def spec(**changes: Any) -> ModelSpec:
    content = {key: value for key, value in {**TINY_CONFIG, **changes}.items() if value is not None}
    return spec_from_config(content)


def test_reads_the_keys_of_a_llama(tmp_path: Path) -> None:
    assert read_model_spec(write_model(tmp_path)) == ModelSpec(
        model_type="llama",
        architectures=("LlamaForCausalLM",),
        num_layers=2,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=256,
        intermediate_size=128,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        dtype="float32",
        sliding_window=None,
        eos_token_ids=(2,),
        # 2 layers x (attention 2 x 64 x 16 x (4 + 2), MLP 3 x 64 x 128), embedding 256 x 64.
        num_parameters=2 * (12288 + 24576) + 16384,
        has_exact_num_parameters=False,
    )


def test_absent_head_dim_is_hidden_size_over_heads() -> None:
    assert spec(head_dim=None).head_dim == 16
    assert spec(head_dim=32).head_dim == 32


def test_absent_kv_heads_are_as_many_as_heads() -> None:
    assert spec(num_key_value_heads=None).num_kv_heads == 4


@pytest.mark.parametrize("head_dim", [4, 12, 20])
def test_head_dim_is_a_multiple_of_8(head_dim: int) -> None:
    with pytest.raises(UnsupportedModelError, match=f"heads are {head_dim} wide"):
        spec(head_dim=head_dim)


def test_heads_narrower_than_one_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="heads are 0 wide"):
        spec(head_dim=None, num_attention_heads=128)


def test_kv_heads_divide_the_heads() -> None:
    with pytest.raises(UnsupportedModelError, match="4 attention heads cannot share 3"):
        spec(num_key_value_heads=3)


def test_dtype_under_both_of_its_names() -> None:
    assert spec(torch_dtype="bfloat16").dtype == "bfloat16"
    assert spec(torch_dtype=None, dtype="float16").dtype == "float16"
    assert spec(torch_dtype="torch.bfloat16").dtype == "bfloat16"
    assert spec(torch_dtype="float32", dtype="bfloat16").dtype == "bfloat16"
    assert spec(torch_dtype=None).dtype == "float32"


def test_sliding_window_that_is_switched_off_is_none() -> None:
    assert spec(sliding_window=128).sliding_window == 128
    assert spec(sliding_window=128, use_sliding_window=True).sliding_window == 128
    assert spec(sliding_window=128, use_sliding_window=False).sliding_window is None


@pytest.mark.parametrize(
    ("written", "ids"), [(2, (2,)), ([5, 3, 5], (3, 5)), (None, ()), ("2", ()), ([True, 0], (0,))]
)
def test_eos_is_a_number_a_list_or_absent(written: object, ids: tuple[int, ...]) -> None:
    assert spec(eos_token_id=written).eos_token_ids == ids


def test_eos_ids_of_the_generation_config_count_too(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [9, 2]}')
    assert read_model_spec(tmp_path).eos_token_ids == (2, 9)


def test_experts_widen_what_one_token_goes_through() -> None:
    moe = spec(
        model_type="qwen3_moe",
        architectures=["Qwen3MoeForCausalLM"],
        moe_intermediate_size=32,
        num_experts=8,
        num_experts_per_tok=2,
    )
    assert moe.intermediate_size == 64
    assert moe.num_parameters == 2 * (12288 + 8 * 3 * 64 * 32) + 16384


def test_untied_ends_are_two_matrices() -> None:
    tied, untied = spec(), spec(tie_word_embeddings=False)
    assert untied.num_parameters - tied.num_parameters == 256 * 64


def test_families_that_leave_the_key_out_are_tied() -> None:
    absent: dict[str, Any] = {"tie_word_embeddings": None}
    assert not spec(**absent).tie_word_embeddings
    assert spec(
        model_type="gemma2", architectures=["Gemma2ForCausalLM"], **absent
    ).tie_word_embeddings


@pytest.mark.parametrize(
    "key",
    [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "vocab_size",
        "intermediate_size",
        "max_position_embeddings",
    ],
)
def test_missing_size_is_named(key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"the model's config has no `{key}`"):
        spec(**{key: None})


@pytest.mark.parametrize("value", ["2", 2.0, True, 0, -1, [2, 2], {"a": 1}])
def test_size_that_is_no_positive_number_is_named(value: object) -> None:
    with pytest.raises(UnsupportedModelError, match="`num_hidden_layers` is `"):
        spec(num_hidden_layers=value)


def test_sizes_in_bytes() -> None:
    model = spec()
    assert model.weights_bytes("float32") == 4 * model.num_parameters
    assert model.weights_bytes("bfloat16") == 2 * model.num_parameters
    assert model.kv_block_bytes(4, "float32") == 4 * 2 * 2 * 2 * 16 * 4


def test_parameters_are_counted_in_the_weights(tmp_path: Path) -> None:
    write_model(tmp_path, torch_dtype=None, tie_word_embeddings=False)
    weights: dict[str, npt.NDArray[Any]] = {
        "model.embed_tokens.weight": np.zeros((4, 3), np.float16),
        "lm_head.weight": np.zeros((4, 3), np.float16),
        "model.norm.weight": np.zeros(3, np.float32),
        "buffer": np.zeros(5, np.int64),
    }
    save_file(weights, tmp_path / "model.safetensors")
    model = read_model_spec(tmp_path)
    assert model.num_parameters == 12 + 12 + 3
    assert model.has_exact_num_parameters
    assert model.dtype == "float16"
    assert not model.tie_word_embeddings


def test_stored_copy_of_a_tied_projection_counts_once(tmp_path: Path) -> None:
    write_model(tmp_path)
    weights = {name: np.zeros((4, 3), np.float32) for name in ("embed", "lm_head.weight")}
    save_file(weights, tmp_path / "model.safetensors")
    assert read_model_spec(tmp_path).num_parameters == 12


def test_weights_without_a_projection_are_tied_whatever_the_config_leaves_out(
    tmp_path: Path,
) -> None:
    write_model(tmp_path, tie_word_embeddings=None)
    save_file({"embed": np.zeros((4, 3), np.float32)}, tmp_path / "model.safetensors")
    assert read_model_spec(tmp_path).tie_word_embeddings


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "is no JSON"), ("[1]", "holds no JSON object"), ("", "is no JSON"), ("\xff", "no JSON")],
)
def test_broken_config_json_is_no_model(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ModelNotFoundError, match=reason):
        read_model_spec(tmp_path)


def test_missing_config_json_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file or directory"):
        read_model_spec(tmp_path)


def test_quantization_in_a_file_of_its_own_is_seen(tmp_path: Path) -> None:
    write_model(tmp_path)
    content = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(content))
    with pytest.raises(UnsupportedModelError, match="is quantised with nvfp4"):
        read_model_spec(tmp_path)


def test_unsupported_model_is_refused_before_its_weights_are_looked_at(tmp_path: Path) -> None:
    write_model(tmp_path, kv_lora_rank=512)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(UnsupportedModelError):
        read_model_spec(tmp_path)
