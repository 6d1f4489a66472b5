import pytest
from config_factory import TINY_CONFIG, TINY_KV_TOKEN_BYTES
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.backends.neuron.generations import DeviceMemory
from neuron_llm.compile.config.config import Config
from neuron_llm.compile.config.kv_cache import KVCachePlan, device_memory, plan_kv_cache
from neuron_llm.compile.model.model_spec import spec_from_config
from neuron_llm.quantities import GIB

MODEL = spec_from_config(TINY_CONFIG)


def kv_plan(max_model_len: int = 64, **values: object) -> KVCachePlan:
    config = Config.model_validate({"model": "m", "block_size": 4, **values})
    return plan_kv_cache(config, MODEL, max_model_len=max_model_len, dtype="float32")


def test_without_a_bound_every_request_has_its_full_length() -> None:
    plan = kv_plan(max_num_seqs=4)
    assert plan.num_blocks == plan.wanted_num_blocks == 4 * 16 + 1
    assert plan.num_usable_blocks == 64
    assert plan.needed_num_blocks == 17
    assert (plan.budget_bytes, plan.budget_source) == (None, "")


def test_partly_filled_block_is_a_block() -> None:
    assert kv_plan(max_model_len=65, max_num_seqs=4).num_blocks == 4 * 17 + 1


def test_budget_cuts_but_does_not_stretch() -> None:
    block_bytes = 4 * TINY_KV_TOKEN_BYTES
    assert block_bytes == 2048
    cut = kv_plan(max_num_seqs=4, kv_cache_memory="100KiB")
    assert (cut.num_blocks, cut.kv_cache_bytes) == (50, 50 * 2048)
    assert (cut.budget_bytes, cut.budget_source) == (100 * 1024, "kv_cache_memory")
    assert kv_plan(max_num_seqs=4, kv_cache_memory="1GiB").num_blocks == 65


def test_override_is_the_number_of_blocks_with_the_null_block() -> None:
    plan = kv_plan(num_gpu_blocks_override=512)
    assert (plan.num_blocks, plan.num_usable_blocks) == (512, 511)
    assert plan.budget_source == "num_gpu_blocks_override"


def test_override_ignores_the_device() -> None:
    plan = kv_plan(num_gpu_blocks_override=17, backend="neuron", neuron_config={"target": "trn2"})
    assert plan.num_blocks == 17


def test_formula_multiplies_to_the_size() -> None:
    plan = kv_plan(max_num_seqs=4)
    assert plan.formula == (
        "65 blocks (1 of them the null block) x 4 tokens x 2 layers x 2 (keys and values)"
        " x 2 heads x 16 head_dim x 4 bytes"
    )
    assert plan.kv_cache_bytes == 65 * 4 * 2 * 2 * 2 * 16 * 4


def test_half_precision_halves_a_block() -> None:
    config = Config.model_validate({"model": "m", "block_size": 4})
    plan = plan_kv_cache(config, MODEL, max_model_len=64, dtype="bfloat16")
    assert plan.block_bytes == 1024


@given(
    max_model_len=st.integers(2, 200),
    block_size=st.integers(1, 40),
    max_num_seqs=st.integers(1, 6),
    budget_kib=st.none() | st.integers(0, 3000),
)
def test_number_of_blocks_equals_counting_them(
    max_model_len: int, block_size: int, max_num_seqs: int, budget_kib: int | None
) -> None:
    """Take the null block, then block after block for token after token, while memory lasts."""
    memory = "auto" if budget_kib is None else f"{budget_kib}KiB"
    plan = kv_plan(
        max_model_len, block_size=block_size, max_num_seqs=max_num_seqs, kv_cache_memory=memory
    )
    bytes_left = float("inf") if budget_kib is None else budget_kib * 1024
    wanted = 1
    for _ in range(max_num_seqs):
        room = 0
        for _ in range(max_model_len):
            if room == 0:
                wanted, room = wanted + 1, block_size
            room -= 1
    allocated = 0
    while allocated < wanted and bytes_left >= block_size * TINY_KV_TOKEN_BYTES:
        allocated += 1
        bytes_left -= block_size * TINY_KV_TOKEN_BYTES
    assert (plan.wanted_num_blocks, plan.num_blocks) == (wanted, allocated)
    fits_one_request = plan.num_usable_blocks * block_size >= max_model_len
    assert fits_one_request == (plan.num_blocks >= plan.needed_num_blocks)


@pytest.mark.parametrize(
    ("target", "logical_nc_config", "total_gib", "resolved"),
    [
        ("inf2", None, 16, 1),
        ("trn1", None, 16, 1),
        ("trn2", None, 24, 2),
        ("trn2", 1, 12, 1),
        ("trn3", None, 36, 2),
    ],
)
def test_memory_of_a_logical_core(
    target: str, logical_nc_config: int | None, total_gib: int, resolved: int
) -> None:
    neuron_config = {"target": target, "logical_nc_config": logical_nc_config}
    config = Config.model_validate(
        {"model": "m", "backend": "neuron", "neuron_config": neuron_config}
    )
    device = device_memory(config)
    assert device == DeviceMemory(target, resolved)
    assert device.total_bytes == total_gib * GIB


def test_kv_budget_of_a_device() -> None:
    device = DeviceMemory("trn2", 2)
    assert device.usable_bytes == int(21.6 * GIB)
    assert device.kv_budget_bytes(0) == int(device.usable_bytes * 0.3)
    assert device.kv_budget_bytes(20 * GIB) == device.usable_bytes - 20 * GIB
    assert device.kv_budget_bytes(30 * GIB) == 0


def test_device_bounds_the_cache() -> None:
    neuron = {"backend": "neuron", "neuron_config": {"target": "inf2"}}
    plan = kv_plan(4096, max_num_seqs=2**20, **neuron)
    assert plan.budget_source == "neuron_config.target"
    assert plan.budget_bytes == DeviceMemory("inf2", 1).kv_budget_bytes(
        MODEL.weights_bytes("float32")
    )
    assert plan.num_blocks == plan.budget_bytes // 2048


def test_cpu_has_no_device() -> None:
    assert device_memory(Config.model_validate({"model": "m"})) is None
