import dataclasses
import os
from pathlib import Path

import pytest
from config_factory import faults, faults_in, load, write_config, write_model

from neuron_llm.compile.config.file import MAX_CONFIG_BYTES, load_config
from neuron_llm.errors import UnsupportedModelError


def test_loads_values_lines_name_and_model(tmp_path: Path) -> None:
    loaded = load(tmp_path, "max_model_len: 64\nneuron_config:\n  num_seqs_buckets: [1, 8]\n")
    assert loaded.name == "tiny"
    assert loaded.path == tmp_path / "tiny.yaml"
    assert loaded.config.max_model_len == 64
    assert loaded.config.neuron_config.num_seqs_buckets == (1, 8)
    assert loaded.lines == {
        "model": 1,
        "max_model_len": 2,
        "neuron_config": 3,
        "neuron_config.num_seqs_buckets": 4,
    }
    assert loaded.model_path == tmp_path / "model"
    assert loaded.model_spec is not None
    assert loaded.model_spec.num_layers == 2


def test_loaded_config_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(tmp_path).name = "other"  # type: ignore[misc]


def test_missing_file_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert faults_in(path) == [" no such file; give the path of a YAML file"]


def test_directory_is_one_fault(tmp_path: Path) -> None:
    assert faults_in(tmp_path) == [" a directory, not a file; give a YAML file in it"]


def test_path_below_a_file_is_one_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert faults_in(tmp_path / "file" / "x.yaml") == [" not readable: Not a directory"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_one_fault(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.chmod(0)
    assert faults_in(path) == [" not readable: Permission denied"]


def test_file_too_large_to_be_a_config_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "weights.yaml"
    path.write_bytes(b"#" * (MAX_CONFIG_BYTES + 1))
    assert faults_in(path) == [
        " larger than a configuration (1000000 bytes); give a YAML file",
    ]


def test_other_encoding_is_one_fault_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("model: m\nrevision: caf\u00e9\n".encode("latin-1"))
    assert faults_in(path) == ["2: byte 0xe9 is not UTF-8; save as UTF-8"]


def test_utf16_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_bytes("model: m\n".encode("utf-16"))
    assert faults_in(path) == ["1: byte 0xff is not UTF-8; save as UTF-8"]


def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_config(path).config.model == "model"


def test_all_faults_come_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    text = (
        "max_model_len: 5000\n"
        "max_num_seqs: 0\n"
        "max_num_batched_tokens: 512\n"
        "max_num_batched_token: 512\n"
        "block_size: 16\n"
        "block_size: 32\n"
        "quantization: int8\n"
        "neuron_config:\n"
        "  num_batched_tokens_buckets: [128, 256]\n"
    )
    found = faults(tmp_path, text)
    assert [fault.split(": ")[:2] for fault in found] == [
        ["2", "max_model_len"],
        ["3", "max_num_seqs"],
        ["5", "max_num_batched_token"],
        ["7", "block_size"],
        ["8", "quantization"],
        ["10", "neuron_config.num_batched_tokens_buckets"],
    ]


def test_model_faults_come_together_with_config_faults(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("max_num_seqs: 0\nmodel: nowhere\n")
    assert faults_in(path) == [
        "1: max_num_seqs: 0 must be a whole number from 1 to 2147483647;"
        " write for example `max_num_seqs: 8`",
        '2: model: "nowhere": no such directory; give a Hugging Face directory,'
        " a `.gguf` file, or a hub id with `revision:`",
    ]


def test_missing_model_key_is_a_fault_without_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("max_num_seqs: 4\n")
    assert faults_in(path) == [
        ' model: missing; write for example `model: "./models/smollm2-135m-instruct"`'
    ]


def test_unsupported_model_keeps_its_own_error(tmp_path: Path) -> None:
    write_model(tmp_path / "model", is_encoder_decoder=True)
    with pytest.raises(UnsupportedModelError, match="has an encoder and a decoder"):
        load(tmp_path)


def test_unsupported_model_is_listed_beside_other_faults(tmp_path: Path) -> None:
    write_model(tmp_path / "model", is_encoder_decoder=True)
    found = faults(tmp_path, "max_num_seqs: 0\n")
    assert found[0].startswith("1: model: the model has an encoder and a decoder")
    assert found[1].startswith("2: max_num_seqs: 0 must be")


def test_hub_id_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "hub.yaml"
    path.write_text("model: owner/name\nrevision: main\n")
    loaded = load_config(path)
    assert loaded.model_path is None
    assert loaded.model_spec is None


def test_rules_that_need_no_model_hold_for_a_hub_id_too(tmp_path: Path) -> None:
    path = tmp_path / "hub.yaml"
    path.write_text(
        "model: owner/name\nrevision: main\nneuron_config:\n  num_seqs_buckets: [1, 2]\n"
        "  num_batched_tokens_buckets: [256, 128]\n"
    )
    assert faults_in(path) == [
        "4: neuron_config.num_seqs_buckets: [1, 2] must end in 8, `max_num_seqs`; write [1, 2, 8]",
        "5: neuron_config.num_batched_tokens_buckets: [256, 128] must ascend strictly;"
        " write [128, 256]",
    ]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("latest.yaml", '"latest" is kept for the link to the latest artifact'),
        ("latest", '"latest" is kept for the link to the latest artifact'),
        (".yaml", '".yaml" starts with `.`'),
        ("..yaml", '"." starts with `.`'),
        ("...yaml", '".." starts with `.`'),
        (".hidden.yaml", '".hidden" starts with `.`'),
        ("a\nb.yaml", '"a\\nb" contains the character 0x0a'),
        ("a\x7f.yaml", '"a\\u007f" contains the character 0x7f'),
        ("caf\udce9.yaml", '"caf\\udce9" contains the character 0xdce9'),
    ],
)
def test_name_that_no_artifact_can_have_is_a_fault(name: str, rule: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, name=name)
    assert faults_in(path) == [f" the artifact's name {rule}; rename the file"]


@pytest.mark.parametrize("name", ["latest2.yaml", "a.b.yaml", "caf\u00e9 1.yaml", "x"])
def test_other_names_are_the_users(name: str, tmp_path: Path) -> None:
    assert load_config(write_config(tmp_path, name=name)).name == Path(name).stem
