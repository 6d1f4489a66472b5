from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizer_factory import BOS, CHAT_TEMPLATE, EOS, byte_level_backend, save_tokenizer, token_ids

from neuron_llm.errors import ModelNotFoundError, RequestError
from neuron_llm.runtime.text.tokenizer import Tokenizer, eos_token_ids

MESSAGES = [{"role": "user", "content": "hello"}]
TEMPLATE_WITH_BOS = "{{ bos_token }}" + CHAT_TEMPLATE


def load(
    directory: Path,
    *,
    adds_bos: bool = False,
    adds_eos: bool = False,
    chat_template: str | None = None,
    bos_token: str | None = BOS,
) -> Tokenizer:
    backend = byte_level_backend(adds_bos=adds_bos, adds_eos=adds_eos)
    path = save_tokenizer(directory, backend, chat_template=chat_template, bos_token=bos_token)
    return Tokenizer.load(path)


def special_id(tokenizer: Tokenizer, token: str) -> int:
    return token_ids(tokenizer.backend, [token])[0]


def test_a_loaded_tokenizer_knows_its_special_tokens(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, adds_bos=True, chat_template=CHAT_TEMPLATE)
    assert tokenizer.bos_token_id == special_id(tokenizer, BOS)
    assert tokenizer.eos_token_id == special_id(tokenizer, EOS)
    assert tokenizer.backend.get_vocab_size() == 256 + 6 + 3
    assert tokenizer.adds_bos and tokenizer.has_chat_template


def test_text_survives_encoding_and_decoding(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, adds_bos=True)
    text = "  hello world\n\t한국어 👨‍👩‍👧 \u0000 é"
    assert tokenizer.decode(tokenizer.encode_prompt(text)) == text


@pytest.mark.parametrize("text", ["hello", f"{BOS}hello"])
def test_a_prompt_has_one_bos_where_the_tokenizer_adds_it(tmp_path: Path, text: str) -> None:
    tokenizer = load(tmp_path, adds_bos=True)
    hello = tokenizer.backend.encode("hello", add_special_tokens=False).ids
    assert tokenizer.encode_prompt(text) == [special_id(tokenizer, BOS), *hello]


def test_a_prompt_has_no_bos_where_neither_text_nor_tokenizer_has_it(tmp_path: Path) -> None:
    tokenizer = load(tmp_path)
    bos = special_id(tokenizer, BOS)
    assert bos not in tokenizer.encode_prompt("hello")
    assert tokenizer.encode_prompt(f"{BOS}hello").count(bos) == 1
    assert tokenizer.encode_prompt(f"{BOS}{BOS}hello").count(bos) == 2  # as it was written


@pytest.mark.parametrize("adds_eos", [False, True])
@pytest.mark.parametrize(
    ("template", "adds_bos"),
    [(TEMPLATE_WITH_BOS, True), (TEMPLATE_WITH_BOS, False), (CHAT_TEMPLATE, True)],
)
def test_messages_have_one_bos_whoever_adds_it(
    tmp_path: Path, template: str, adds_bos: bool, adds_eos: bool
) -> None:
    tokenizer = load(tmp_path, adds_bos=adds_bos, adds_eos=adds_eos, chat_template=template)
    body = tokenizer.backend.encode("[user]hello\n[assistant]", add_special_tokens=False).ids
    assert tokenizer.encode_messages(MESSAGES) == [special_id(tokenizer, BOS), *body]


@pytest.mark.parametrize("bos_token", [BOS, None])
def test_messages_have_no_bos_if_neither_template_nor_tokenizer_adds_it(
    tmp_path: Path, bos_token: str | None
) -> None:
    # A model may name a begin-of-sequence token that it was never shown in a conversation.
    tokenizer = load(tmp_path, chat_template=CHAT_TEMPLATE, bos_token=bos_token)
    body = tokenizer.backend.encode("[user]hello\n[assistant]", add_special_tokens=False).ids
    assert tokenizer.encode_messages(MESSAGES) == body


def test_a_given_template_replaces_the_one_of_the_model(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, chat_template=CHAT_TEMPLATE)
    ids = tokenizer.encode_messages(MESSAGES, chat_template="{{ messages[0]['content'] }}!")
    assert tokenizer.decode(ids) == "hello!"


def test_messages_without_a_template_name_the_ways_out(tmp_path: Path) -> None:
    tokenizer = load(tmp_path)
    with pytest.raises(RequestError, match="no chat template") as raised:
        tokenizer.encode_messages(MESSAGES)
    assert raised.value.code == "no_chat_template"
    assert raised.value.hint is not None
    assert "--template FILE" in raised.value.hint and "--raw" in raised.value.hint
    assert tokenizer.encode_messages(MESSAGES, chat_template=CHAT_TEMPLATE)


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ("{{ raise_exception('roles must alternate') }}", "invalid_messages"),
        ("{{ messages[0]['content'] + 1 }}", "invalid_messages"),
        ("{{ messages[0].name.first }}", "invalid_messages"),
        ("{{ 1 / 0 }}", "invalid_messages"),
        ("{{ messages[0]['content'].index('nowhere') }}", "invalid_messages"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "invalid_messages"),
        ("{% for %}", "invalid_chat_template"),
    ],
)
def test_what_a_template_refuses_is_the_error_of_that_request(
    tmp_path: Path, template: str, code: str
) -> None:
    tokenizer = load(tmp_path)
    with pytest.raises(RequestError) as raised:
        tokenizer.encode_messages(MESSAGES, chat_template=template)
    assert raised.value.code == code


def test_no_messages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as raised:
        load(tmp_path, chat_template=CHAT_TEMPLATE).encode_messages([])
    assert raised.value.code == "invalid_messages"


def test_an_empty_prompt_is_the_bos_token_or_an_error(tmp_path: Path) -> None:
    with_bos = load(tmp_path / "with", adds_bos=True)
    assert with_bos.encode_prompt("") == [special_id(with_bos, BOS)]
    with pytest.raises(RequestError) as raised:
        load(tmp_path / "without").encode_prompt("")
    assert raised.value.code == "empty_prompt"


def test_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as raised:
        load(tmp_path).encode_prompt("a\ud83d")
    assert raised.value.code == "invalid_unicode"


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=32)
    tokenizer = Tokenizer.load(save_tokenizer(tmp_path, backend))
    assert len(tokenizer.encode_prompt("abcdefghij")) == 10


def test_ids_past_the_vocabulary_and_hidden_specials_have_no_text(tmp_path: Path) -> None:
    tokenizer = load(tmp_path)
    eos = special_id(tokenizer, EOS)
    assert tokenizer.decode([eos, 5000]) == ""
    assert not tokenizer.has_text(5000, skip_special_tokens=False)
    assert not tokenizer.has_text(eos, skip_special_tokens=True)
    assert tokenizer.has_text(eos, skip_special_tokens=False)
    assert tokenizer.has_text(0, skip_special_tokens=True)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no tokenizer directory at"):
        Tokenizer.load(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", ["{bad", "{}", None])
def test_a_damaged_or_missing_tokenizer_file_is_an_error(
    tmp_path: Path, damage: str | None
) -> None:
    path = save_tokenizer(tmp_path, byte_level_backend()) / "tokenizer.json"
    path.unlink()
    if damage is not None:
        path.write_text(damage, encoding="utf-8")
    with pytest.raises(ModelNotFoundError, match="does not load"):
        Tokenizer.load(tmp_path)


def test_code_of_the_model_is_never_run(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, byte_level_backend())
    config = {"auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "code.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    with pytest.raises(ModelNotFoundError):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "generation_config", "expected"),
    [
        (None, None, []),
        ({"eos_token_id": 5}, None, [5]),
        ({"eos_token_id": 5}, {"eos_token_id": [7, 5]}, [7, 5]),
        ({"eos_token_id": [5, 6]}, {"eos_token_id": 5}, [5, 6]),
        ({"eos_token_id": None}, {"eos_token_id": 0}, [0]),
        ({"text_config": {"eos_token_id": 9}}, {}, [9]),
        ({"text_config": None}, {"eos_token_id": [8]}, [8]),
    ],
)
def test_every_source_of_eos_counts_and_the_tokenizer_comes_first(
    tmp_path: Path,
    config: dict[str, Any] | None,
    generation_config: dict[str, Any] | None,
    expected: list[int],
) -> None:
    tokenizer = load(tmp_path / "tokenizer")
    for name, value in (("config", config), ("generation_config", generation_config)):
        if value is not None:
            (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    eos = special_id(tokenizer, EOS)
    assert eos_token_ids(tmp_path, tokenizer) == (eos, *expected)


def test_an_eos_that_two_sources_name_counts_once(tmp_path: Path) -> None:
    tokenizer = load(tmp_path)
    eos = special_id(tokenizer, EOS)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [eos, 1]}), encoding="utf-8")
    assert eos_token_ids(tmp_path, tokenizer) == (eos, 1)
