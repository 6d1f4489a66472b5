from pathlib import Path

import pytest
from config_factory import write_model

from neuron_llm.compile.model.model_path import find_model
from neuron_llm.errors import ModelNotFoundError

HINT = "give a Hugging Face directory, a `.gguf` file, or a hub id with `revision:`"


def refusal(model: str, revision: str | None, config_dir: Path) -> tuple[str, str | None]:
    with pytest.raises(ModelNotFoundError) as caught:
        find_model(model, revision, config_dir)
    return caught.value.message, caught.value.hint


def test_current_directory_comes_before_the_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, beside = tmp_path / "here", tmp_path / "configs"
    write_model(here / "both")
    write_model(beside / "both")
    write_model(beside / "one")
    monkeypatch.chdir(here)
    assert find_model("both", None, beside) == Path("both")
    assert find_model("./both", None, beside) == Path("both")
    assert find_model("one", None, beside) == beside / "one"


def test_absolute_path_is_taken_as_it_is(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    assert find_model(str(model), None, Path("elsewhere")) == model


def test_gguf_file_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert find_model("m.gguf", None, tmp_path) == tmp_path / "m.gguf"


def test_other_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"")
    expected = f'"{tmp_path}/m.bin" is a file, but no `.gguf` file'
    assert refusal("m.bin", None, tmp_path) == (expected, HINT)


def test_missing_directory_and_missing_file_are_named_as_such(tmp_path: Path) -> None:
    assert refusal("m", None, tmp_path) == ('"m": no such directory', HINT)
    assert refusal("m.gguf", None, tmp_path) == ('"m.gguf": no such file', HINT)


def test_hub_id_needs_a_revision(tmp_path: Path) -> None:
    assert find_model("owner/name-1.5", "main", tmp_path) is None
    assert refusal("owner/name-1.5", None, tmp_path) == (
        '"owner/name-1.5": no such directory',
        HINT,
    )


@pytest.mark.parametrize("model", ["./owner/name", "a/b/c", "/owner/name", "../x", "name", "a b/c"])
def test_path_with_a_revision_is_no_hub_id(model: str, tmp_path: Path) -> None:
    assert refusal(model, "main", tmp_path)[0] == f'"{model}": no such directory'


def test_revision_of_a_local_model_is_refused_not_ignored(tmp_path: Path) -> None:
    write_model(tmp_path / "m")
    assert refusal("m", "abc", tmp_path) == (
        '"m" is a local path, which has no `revision` ("abc")',
        "remove `revision`",
    )


def test_directory_without_config_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    assert refusal("m", None, tmp_path) == (f'"{tmp_path}/m" contains no `config.json`', HINT)


def test_directory_with_a_gguf_file_is_told_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a.gguf").write_bytes(b"")
    assert refusal("m", None, tmp_path)[1] == f"write `model: {tmp_path}/m/a.gguf`"


@pytest.mark.parametrize("model", ["a" * 5000, "nul\0", "\ud800"])
def test_name_that_no_file_can_have_is_missing(model: str, tmp_path: Path) -> None:
    assert refusal(model, None, tmp_path)[0].endswith("no such directory")
