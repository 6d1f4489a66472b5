import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.compile.config.config import Config, NeuronConfig
from neuron_llm.compile.config.values import check_values

COUNT_KEYS = ("max_num_seqs", "max_num_batched_tokens", "block_size")


def faults_of(**values: object) -> list[tuple[str, str]]:
    checked = check_values({"model": "m", **values})
    return [(fault.key, fault.text) for fault in checked.faults]


def test_defaults_of_a_file_that_names_only_a_model() -> None:
    checked = check_values({"model": "m"})
    assert checked.faults == []
    assert checked.wrong_keys == frozenset()
    assert checked.config.model_dump() == {
        "model": "m",
        "revision": None,
        "backend": "cpu",
        "dtype": "auto",
        "max_model_len": None,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 2048,
        "block_size": 32,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "kv_admission": "reserve",
        "max_consecutive_prefills": None,
        "quantization": None,
        "kv_cache_memory": "auto",
        "num_gpu_blocks_override": None,
        "neuron_config": {
            "num_batched_tokens_buckets": None,
            "num_seqs_buckets": None,
            "decode_context_length_buckets": None,
            "target": None,
            "logical_nc_config": None,
            "kv_segment_size_buckets": None,
            "compiler_args": (),
            "binding": "auto",
            "on_device_sampling_config": None,
        },
    }


@pytest.mark.parametrize("key", COUNT_KEYS)
@pytest.mark.parametrize(
    ("value", "written", "way_out"),
    [
        ("8", '"8"', "write it without quotes"),
        (8.0, "8.0", "write `8`"),
        (8.5, "8.5", None),
        (True, "true", None),
        (None, "null", "give a value, or remove the line for the default"),
        (0, "0", None),
        (-1, "-1", None),
        (2**31, "2147483648", None),
        ([8], "[8]", None),
        ({"a": 8}, "{a: 8}", None),
    ],
)
def test_counts_are_whole_numbers_of_at_least_one(
    key: str, value: object, written: str, way_out: str | None
) -> None:
    example = {"max_num_seqs": 8, "max_num_batched_tokens": 512, "block_size": 32}[key]
    way_out = way_out or f"write for example `{key}: {example}`"
    rule = "must be a whole number from 1 to 2147483647"
    assert faults_of(**{key: value}) == [(key, f"{written} {rule}; {way_out}")]


def test_number_of_thousands_of_digits_is_cut_in_the_message() -> None:
    ((key, text),) = faults_of(max_num_seqs="9" * 5000)
    assert key == "max_num_seqs"
    assert len(text) < 250
    assert "without quotes" not in text


@pytest.mark.parametrize("value", [1, 0, "true", "yes", None, []])
@pytest.mark.parametrize("key", ["enable_prefix_caching", "async_scheduling"])
def test_switches_are_true_or_false(key: str, value: object) -> None:
    ((found, text),) = faults_of(**{key: value})
    assert found == key
    assert "must be `true` or `false`" in text


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("dtype", "bf16", "bfloat16"),
        ("dtype", "fp32", None),
        ("backend", "neurons", "neuron"),
        ("kv_admission", "max_model_length", "max_model_len"),
        ("quantization", "int4", "int8"),
    ],
)
def test_choice_that_is_none_gets_a_did_you_mean(key: str, value: str, meant: str | None) -> None:
    ((found, text),) = faults_of(**{key: value})
    assert found == key
    assert text.startswith(f'"{value}" must be ')
    if meant is None:
        assert "; write for example `dtype:" in text
    else:
        assert text.endswith(f"; did you mean `{meant}`?")


@pytest.mark.parametrize("value", ["2GB", "2 GiB", "GiB", "-1GiB", "1e3GiB", "", "2gib", 2, 2.0])
def test_memory_needs_a_number_and_a_unit(value: object) -> None:
    ((key, text),) = faults_of(kv_cache_memory=value)
    assert key == "kv_cache_memory"
    assert "must be `auto`, or a size in KiB, MiB, GiB or TiB" in text


@pytest.mark.parametrize(
    ("written", "num_bytes"),
    [
        ("auto", None),
        ("1KiB", 1024),
        ("1.5KiB", 1536),
        ("3MiB", 3 * 2**20),
        ("2GiB", 2**31),
        ("1TiB", 2**40),
        ("0GiB", 0),
    ],
)
def test_memory_in_bytes(written: str, num_bytes: int | None) -> None:
    config = Config.model_validate({"model": "m", "kv_cache_memory": written})
    assert config.kv_cache_memory_bytes == num_bytes


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_cache_memory", 1500.0),
        ("kv_cache_memory", "1500"),
        ("max_num_seqs", "0"),
        ("max_num_seqs", "9999999999"),
        ("max_num_seqs", 0.0),
        ("max_model_len", "1"),
        ("model", None),
    ],
)
def test_no_advice_leads_to_the_next_fault(key: str, value: object) -> None:
    (fault,) = check_values({"model": "m", key: value}).faults
    assert f"; write for example `{key}: " in fault.text


def test_item_that_is_missing_has_no_default() -> None:
    found = faults_of(neuron_config={"num_seqs_buckets": [1, None]})
    assert [text.partition("; ")[2] for _, text in found] == [
        "write for example `num_seqs_buckets: [1, 2, 4, 8]`"
    ]


@pytest.mark.parametrize("items", [[10**15], [0], [10**15, None], ["x"]])
def test_list_of_wrong_items_has_one_fault_for_each(items: list[object]) -> None:
    found = faults_of(neuron_config={"num_seqs_buckets": items})
    key = "neuron_config.num_seqs_buckets"
    assert [name for name, _ in found] == [f"{key}[{index}]" for index in range(len(items))]


def test_every_wrong_item_of_a_list_is_named() -> None:
    found = faults_of(neuron_config={"num_seqs_buckets": [1, True, 2, 0, "4"]})
    key = "neuron_config.num_seqs_buckets"
    rule = "must be a whole number from 1 to 2147483647"
    example = "write for example `num_seqs_buckets: [1, 2, 4, 8]`"
    assert found == [
        (f"{key}[1]", f"true {rule}; {example}"),
        (f"{key}[3]", f"0 {rule}; {example}"),
        (f"{key}[4]", f'"4" {rule}; write it without quotes'),
    ]


@pytest.mark.parametrize("value", [8, "8", {}, True, []])
def test_bucket_lists_are_lists_with_something_in_them(value: object) -> None:
    ((key, text),) = faults_of(neuron_config={"num_batched_tokens_buckets": value})
    assert key == "neuron_config.num_batched_tokens_buckets"
    assert "must be a list of whole numbers from 1 to 2147483647" in text


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_neuron_config_is_a_mapping(value: object) -> None:
    ((key, text),) = faults_of(neuron_config=value)
    assert key == "neuron_config"
    assert "must be a mapping of keys to values" in text


@pytest.mark.parametrize(
    ("values", "key", "text"),
    [
        ({"max_num_seq": 1}, "max_num_seq", "no such key; did you mean `max_num_seqs`?"),
        (
            {"num_seqs_buckets": [1]},
            "num_seqs_buckets",
            "no such key here; did you mean `neuron_config.num_seqs_buckets`?",
        ),
        (
            {"neuron_config": {"max_num_seqs": 1}},
            "neuron_config.max_num_seqs",
            "no such key here; did you mean `max_num_seqs`?",
        ),
        (
            {"neuron_config": {"bindig": "auto"}},
            "neuron_config.bindig",
            "no such key; did you mean `neuron_config.binding`?",
        ),
        (
            {"neuron_config": {"on_device_sampling_config": {"top": 1}}},
            "neuron_config.on_device_sampling_config.top",
            "no such key; the keys are `all_greedy`, `max_top_k`, `deterministic`",
        ),
    ],
)
def test_unknown_key_gets_a_did_you_mean(values: dict[str, object], key: str, text: str) -> None:
    assert faults_of(**values) == [(key, text)]


def test_revision_of_digits_needs_quotes() -> None:
    assert faults_of(revision=123456) == [
        ("revision", "123456 must be text; put it in quotes"),
    ]


def test_trust_remote_code_is_refused_with_the_reason() -> None:
    ((key, text),) = faults_of(trust_remote_code=True)
    assert key == "trust_remote_code"
    assert "code that comes with a model is never run" in text


def test_prefill_with_several_rows_has_no_key() -> None:
    ((key, text),) = faults_of(neuron_config={"prefill_batch_sizes": [4], "num_seqs_buckets": [8]})
    assert key == "neuron_config.prefill_batch_sizes"
    assert text.startswith("no such key")


def test_what_is_right_is_kept_and_the_rest_has_defaults() -> None:
    checked = check_values(
        {
            "model": 3,
            "block_size": 16,
            "max_num_seqs": "x",
            "neuron_config": {"num_seqs_buckets": [0], "target": "trn2", "nothing": 1},
        }
    )
    assert checked.config.block_size == 16
    assert checked.config.max_num_seqs == 8
    assert checked.config.neuron_config.num_seqs_buckets is None
    assert checked.config.neuron_config.target == "trn2"
    assert checked.wrong_keys == {
        "model",
        "max_num_seqs",
        "neuron_config.num_seqs_buckets",
        "neuron_config.nothing",
    }


def test_every_field_says_what_it_must_be_and_its_example_is_right() -> None:
    for model in (Config, NeuronConfig):
        for key, field in model.model_fields.items():
            assert field.description, key
            assert field.examples, key
            values = {key: field.examples[0]}
            nested = values if model is Config else {"neuron_config": values}
            assert check_values({"model": "m", **nested}).faults == [], key


# A fault in a list has its index in brackets, which the test below cuts off.
_NAMES = st.text(st.characters(exclude_characters="["), max_size=5)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from([*Config.model_fields, *NeuronConfig.model_fields, "other"])


@given(st.dictionaries(_KEYS, _VALUES, max_size=4), st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_any_values_give_a_config_and_a_fault_for_each_wrong_key(
    values: dict[str, object], neuron_config: dict[str, object]
) -> None:
    checked = check_values({**values, "neuron_config": neuron_config})
    assert {fault.key.partition("[")[0] for fault in checked.faults} == checked.wrong_keys
