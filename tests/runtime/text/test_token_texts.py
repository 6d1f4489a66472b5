from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizer_factory import (
    EOS,
    byte_fallback_backend,
    byte_fallback_ids,
    byte_level_backend,
    byte_level_ids,
    save_tokenizer,
    token_ids,
)
from tokenizers import Tokenizer as Backend

from neuron_llm.runtime.text.token_texts import TokenTexts
from neuron_llm.runtime.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("byte_level")
    return Tokenizer.load(save_tokenizer(directory, byte_level_backend()))


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("byte_fallback")
    return Tokenizer.load(save_tokenizer(directory, byte_fallback_backend()))


def texts_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    texts = TokenTexts(tokenizer)
    return [texts.text(token_id, ids[:index]) for index, token_id in enumerate(ids)]


def test_the_token_that_completes_a_character_is_the_whole_of_it(byte_level: Tokenizer) -> None:
    ids = byte_level_ids(byte_level.backend, "a한😀b".encode())
    assert texts_of(byte_level, ids) == ["a", "", "", "한", "", "", "", "😀", "b"]


def test_a_byte_that_completes_nothing_is_empty(byte_level: Tokenizer) -> None:
    ids = byte_level_ids(byte_level.backend, b"a\xff\x80b")
    assert texts_of(byte_level, ids) == ["a", "", "", "b"]


@given(text=st.text(max_size=12))
@example(text="\ufffd")
@example(text="a\ufffd\ufffdb\ufffd")
def test_joined_the_texts_are_the_text(byte_level: Tokenizer, text: str) -> None:
    assert "".join(texts_of(byte_level, byte_level.encode_part(text))) == text


def test_a_space_in_front_of_a_word_belongs_to_it(byte_fallback: Tokenizer) -> None:
    ids = token_ids(byte_fallback.backend, ["▁hello", "▁world", "hello", "!"])
    assert texts_of(byte_fallback, ids) == [" hello", " world", "hello", "!"]


def test_byte_fallback_completes_characters_too(byte_fallback: Tokenizer) -> None:
    first, last = token_ids(byte_fallback.backend, ["a", "b"])
    ids = [first, *byte_fallback_ids(byte_fallback.backend, "é".encode()), last]
    assert texts_of(byte_fallback, ids) == ["a", "", "é", "b"]


@pytest.mark.parametrize("backend", [byte_level_backend, byte_fallback_backend])
def test_special_tokens_have_their_names_and_unknown_ids_nothing(
    backend: Callable[[], Backend], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(save_tokenizer(tmp_path / "tokenizer", backend()))
    (eos,) = token_ids(tokenizer.backend, [EOS])
    assert texts_of(tokenizer, [eos, 10**6]) == [EOS, ""]
