from __future__ import annotations

import pytest
from tokenizer_factory import byte_level_backend, save_tokenizer

from neuron_llm.errors import RequestError
from neuron_llm.runtime.text.bad_words import bad_words_token_ids
from neuron_llm.runtime.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """It merges ` hello`, `hello`, ` w` and parts of them, and adds a beginning to every text."""
    directory = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer.load(save_tokenizer(directory, byte_level_backend(adds_bos=True)))


def words_of(tokenizer: Tokenizer, *words: str) -> list[str]:
    return [tokenizer.decode(ids) for ids in bad_words_token_ids(tokenizer, words)]


def test_a_word_is_forbidden_at_the_start_and_within_a_text(tokenizer: Tokenizer) -> None:
    sequences = bad_words_token_ids(tokenizer, ["hello"])
    assert [tokenizer.decode(ids) for ids in sequences] == ["hello", " hello"]
    assert [len(ids) for ids in sequences] == [1, 1]
    # Leading spaces of the word itself make no difference.
    assert bad_words_token_ids(tokenizer, ["  hello"]) == sequences


def test_the_form_with_a_space_counts_only_with_as_many_tokens(tokenizer: Tokenizer) -> None:
    assert words_of(tokenizer, "w") == ["w", " w"]
    assert words_of(tokenizer, "x") == ["x"]  # The space would be a token of its own.
    assert words_of(tokenizer, "wx", "hello!") == ["wx", " wx", "hello!", " hello!"]


def test_no_bad_words_are_no_sequences(tokenizer: Tokenizer) -> None:
    assert bad_words_token_ids(tokenizer, []) == []


def test_a_word_without_tokens_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="`bad_words` holds '  ', which") as raised:
        bad_words_token_ids(tokenizer, ["a", "  "])
    assert raised.value.code == "invalid_sampling"


def test_too_many_are_refused_with_the_limit(tokenizer: Tokenizer) -> None:
    words = [f"x{number}" for number in range(129)]
    assert len(bad_words_token_ids(tokenizer, words[:128])) == 128
    with pytest.raises(RequestError, match="129 token sequences, more than 128"):
        bad_words_token_ids(tokenizer, words)


def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError) as raised:
        bad_words_token_ids(tokenizer, ["\ud800"])
    assert raised.value.code == "invalid_unicode"
