from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import load, write_config, write_model

from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.written_config import ChosenLists, changed_config
from neuron_llm.compile.written_config import write_config as write
from neuron_llm.errors import ConfigError, NeuronLLMError

COMMENTED = """\
# what it is for
max_model_len: 256        # prompt and output
max_num_seqs: 8
max_num_batched_tokens: 128   # a chunk

neuron_config:
  # prefills
  num_batched_tokens_buckets:
    - 32
    - 64    # most of them
    - 128   # the last
  # decodes
  num_seqs_buckets: [1, 2, 8]   # rows
  decode_context_length_buckets: [128]   # contexts
# the end
"""


def test_comments_and_order_are_kept(tmp_path: Path) -> None:
    source = write_config(tmp_path, COMMENTED)
    text = changed_config(source, tmp_path, ChosenLists(None, [20, 64, 128], [2, 8], []))
    expected = (
        source.read_text()
        .replace("- 32", "- 20")
        .replace("[1, 2, 8]   # rows", "[2, 8]      # rows")
        .replace("buckets: [128]   # contexts", "buckets:         # contexts")
    )
    assert text.split() == expected.split()
    assert [line.split("#")[1:] for line in text.splitlines()] == [
        line.split("#")[1:] for line in expected.splitlines()
    ]


def test_what_is_written_loads_and_says_what_was_chosen(tmp_path: Path) -> None:
    source = write_config(tmp_path, COMMENTED)
    out = tmp_path / "out.yaml"
    lists = ChosenLists(200, [20, 200], [3, 8], [128])
    write(source, out, lists, force=False)
    config = load_config(out).config
    assert config.max_num_batched_tokens == 200
    assert config.neuron_config.num_batched_tokens_buckets == (20, 200)
    assert config.neuron_config.num_seqs_buckets == (3, 8)
    assert config.neuron_config.decode_context_length_buckets == (128,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out.yaml", "tiny.yaml"]


def test_keys_that_were_not_there_are_added(tmp_path: Path) -> None:
    source = write_config(tmp_path, "max_num_seqs: 8\n# the end\n")
    out = tmp_path / "out.yaml"
    write(source, out, ChosenLists(64, [20, 64], [3, 8], [128]), force=False)
    config = load_config(out).config
    assert config.max_num_batched_tokens == 64
    assert config.neuron_config.num_seqs_buckets == (3, 8)
    assert "# the end" in out.read_text()


def test_the_model_is_found_from_another_folder(tmp_path: Path) -> None:
    source = write_config(tmp_path, "max_num_seqs: 8\n")
    out = tmp_path / "elsewhere" / "out.yaml"
    write(source, out, ChosenLists(num_seqs_buckets=[8]), force=False)
    found = load_config(out).model_path
    assert found is not None and found.resolve() == (tmp_path / "model").resolve()


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    source = write_config(tmp_path, "max_num_seqs: 8\n")
    out = tmp_path / "out.yaml"
    out.write_text("mine")
    with pytest.raises(NeuronLLMError, match="exists"):
        write(source, out, ChosenLists(num_seqs_buckets=[8]), force=False)
    assert out.read_text() == "mine"
    write(source, out, ChosenLists(num_seqs_buckets=[8]), force=True)
    assert load_config(out).config.neuron_config.num_seqs_buckets == (8,)


def test_what_would_not_load_is_never_written(tmp_path: Path) -> None:
    source = write_config(tmp_path, "max_num_seqs: 8\n")
    out = tmp_path / "out.yaml"
    with pytest.raises(ConfigError):
        write(source, out, ChosenLists(num_seqs_buckets=[2, 4]), force=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "tiny.yaml"]


def test_a_path_from_the_current_directory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model")
    load(tmp_path)
    text = changed_config(tmp_path / "tiny.yaml", tmp_path / "sub", ChosenLists())
    assert text.startswith("model: model\n")
