from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_factory import (
    BOS,
    END,
    EOS,
    byte_fallback_backend,
    byte_fallback_ids,
    byte_level_backend,
    byte_level_ids,
    save_tokenizer,
    token_ids,
)
from tokenizers import Tokenizer as Backend

from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.text.detokenizer import IncrementalDetokenizer
from neuron_llm.runtime.text.tokenizer import Tokenizer

EMOJI, HANGUL, FAMILY, FLAG = "😀", "안녕하세요", "👨‍👩‍👧‍👦", "🇰🇷"
REPLACEMENT = "\ufffd"


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("byte_level"), byte_level_backend())


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("byte_fallback"), byte_fallback_backend())


def load(directory: Path, backend: Backend) -> Tokenizer:
    return Tokenizer.load(save_tokenizer(directory, backend))


def detokenize(
    tokenizer: Tokenizer, output: Sequence[int], prompt: Sequence[int] = (), **fields: Any
) -> tuple[list[str], IncrementalDetokenizer]:
    params = SamplingParams(**{"max_tokens": None, **fields})
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, params)
    pieces = [detokenizer.push(token_id) for token_id in output]
    assert tokenizer.eos_token_id is not None
    pieces.append(detokenizer.finish(ending_token_id=tokenizer.eos_token_id))
    assert detokenizer.text == "".join(pieces)
    return pieces, detokenizer


@pytest.mark.parametrize("text", [EMOJI, HANGUL, FAMILY, FLAG, "é", "a\u200db", "x" + EMOJI + "y"])
def test_no_piece_ends_within_a_character(byte_level: Tokenizer, text: str) -> None:
    output = byte_level_ids(byte_level.backend, text.encode())
    pieces, _ = detokenize(byte_level, output)
    assert pieces[-1] == ""
    assert [piece for piece in pieces if piece] == list(text)


@pytest.mark.parametrize("text", [EMOJI, HANGUL, FAMILY, FLAG])
def test_no_piece_of_byte_fallback_tokens_ends_within_a_character(
    byte_fallback: Tokenizer, text: str
) -> None:
    output = byte_fallback_ids(byte_fallback.backend, text.encode())
    pieces, _ = detokenize(byte_fallback, output)
    assert [piece for piece in pieces if piece] == list(text)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40), prompt=st.text(max_size=12), skip=st.booleans())
def test_joined_pieces_are_the_whole_text(
    byte_level: Tokenizer, text: str, prompt: str, skip: bool
) -> None:
    prompt_ids = byte_level.backend.encode(prompt).ids
    output = byte_level.backend.encode(text).ids
    _, detokenizer = detokenize(byte_level, output, prompt_ids, skip_special_tokens=skip)
    assert detokenizer.text == byte_level.decode(output, skip_special_tokens=skip)


@settings(max_examples=300, deadline=None)
@given(output=st.lists(st.integers(0, 290), max_size=60), skip=st.booleans())
@example(output=[0x80] * 60, skip=True)
def test_any_tokens_give_what_the_tokenizer_decodes_even_if_they_are_no_text(
    byte_level: Tokenizer, output: list[int], skip: bool
) -> None:
    pieces, detokenizer = detokenize(byte_level, output, skip_special_tokens=skip)
    assert detokenizer.text == byte_level.decode(output, skip_special_tokens=skip)
    assert not any(piece.endswith(REPLACEMENT) for piece in pieces[:-1] if len(output) <= 16)


@settings(max_examples=300, deadline=None)
@given(words=st.lists(st.sampled_from(["▁hello", "▁world", "a", "▁", BOS, "é", EMOJI, "한"])))
def test_byte_fallback_text_is_the_whole_text(byte_fallback: Tokenizer, words: list[str]) -> None:
    vocab = byte_fallback.backend.get_vocab()
    output: list[int] = []
    for word in words:
        is_token = word in vocab
        output += (
            [vocab[word]] if is_token else byte_fallback_ids(byte_fallback.backend, word.encode())
        )
    _, detokenizer = detokenize(byte_fallback, output)
    assert detokenizer.text == byte_fallback.decode(output)


def test_an_unfinished_character_is_flushed_as_the_tokenizer_decodes_it(
    byte_level: Tokenizer,
) -> None:
    output = byte_level_ids(byte_level.backend, b"ok" + EMOJI.encode()[:3])
    pieces, _ = detokenize(byte_level, output)
    assert pieces == ["o", "k", "", "", "", REPLACEMENT]


def test_bytes_that_are_no_text_come_out_with_the_next_character(byte_level: Tokenizer) -> None:
    output = byte_level_ids(byte_level.backend, b"\xff\xfea")
    assert detokenize(byte_level, output)[0] == ["", "", REPLACEMENT * 2 + "a", ""]


@pytest.mark.parametrize("num_bad", range(8, 44))
def test_a_character_behind_any_number_of_bad_bytes_is_whole(
    byte_level: Tokenizer, num_bad: int
) -> None:
    output = byte_level_ids(byte_level.backend, b"\x80" * num_bad + f"{EMOJI}{EMOJI}".encode())
    pieces, detokenizer = detokenize(byte_level, output)
    assert detokenizer.text == REPLACEMENT * num_bad + EMOJI * 2
    assert pieces[-2:] == [EMOJI, ""]


def test_an_endless_run_of_bad_bytes_neither_stalls_nor_piles_up(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded_lengths: list[int] = []
    decode = byte_level.decode

    def counted(token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        decoded_lengths.append(len(token_ids))
        return decode(token_ids, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr(byte_level, "decode", counted)
    output = byte_level_ids(byte_level.backend, b"\x80" * 1000)
    pieces, detokenizer = detokenize(byte_level, output)
    assert detokenizer.text == REPLACEMENT * 1000
    assert len("".join(pieces[:100])) >= 80
    assert max(decoded_lengths) <= 25


def test_a_broken_byte_run_behind_a_character_does_not_take_it_back(
    byte_fallback: Tokenizer,
) -> None:
    backend = byte_fallback.backend
    output = [*byte_fallback_ids(backend, "€".encode() + b"\xe2"), *token_ids(backend, ["a"])]
    pieces, detokenizer = detokenize(byte_fallback, output)
    assert pieces[2] == "€"
    assert detokenizer.text == "€" + REPLACEMENT * 3 + "a"


def test_the_first_output_token_keeps_its_space_behind_a_prompt(byte_fallback: Tokenizer) -> None:
    hello, world = token_ids(byte_fallback.backend, ["▁hello", "▁world"])
    assert detokenize(byte_fallback, [world, world], [hello])[0] == [" world", " world", ""]
    assert detokenize(byte_fallback, [world, world], [])[0] == ["world", " world", ""]


def test_a_hidden_special_token_does_not_swallow_the_space_behind_it(
    byte_fallback: Tokenizer,
) -> None:
    hello, world, end = token_ids(byte_fallback.backend, ["▁hello", "▁world", END])
    output = [hello, *[end] * 20, world, 10**6, world]
    assert detokenize(byte_fallback, output)[1].text == "hello world world"
    prompt = [hello, *[end] * 20]
    assert detokenize(byte_fallback, [world], prompt)[1].text == " world"


def test_a_prompt_cut_within_a_character_does_not_spoil_the_next_one(
    byte_fallback: Tokenizer,
) -> None:
    prompt = byte_fallback_ids(byte_fallback.backend, "한한한".encode())
    output = byte_fallback_ids(byte_fallback.backend, EMOJI.encode())
    assert detokenize(byte_fallback, output, prompt)[0] == ["", "", "", EMOJI, ""]


def test_special_tokens_are_text_only_if_asked_for(byte_level: Tokenizer) -> None:
    output = [*byte_level.backend.encode("hello").ids, *token_ids(byte_level.backend, [END])]
    assert detokenize(byte_level, output)[1].text == "hello"
    assert detokenize(byte_level, output, skip_special_tokens=False)[1].text == f"hello{END}"


def test_generation_stops_at_a_stop_string_that_spans_tokens(byte_level: Tokenizer) -> None:
    output = byte_level_ids(byte_level.backend, b"abcde")
    pieces, detokenizer = detokenize(byte_level, output, stop=["xyz", "bcd"])
    assert pieces == ["a", "", "", "", "", ""]
    assert detokenizer.stop_reason == "bcd"
    pieces, detokenizer = detokenize(
        byte_level, output, stop="bcd", include_stop_str_in_output=True
    )
    assert (detokenizer.text, detokenizer.stop_reason) == ("abcd", "bcd")


def test_withheld_text_comes_out_at_the_end_if_no_stop_string_follows(
    byte_level: Tokenizer,
) -> None:
    output = byte_level_ids(byte_level.backend, b"abc")
    pieces, detokenizer = detokenize(byte_level, output, stop="bcd")
    assert pieces == ["a", "", "", "bc"]
    assert detokenizer.stop_reason is None


def test_a_stop_string_of_split_characters_is_found(byte_level: Tokenizer) -> None:
    output = byte_level_ids(byte_level.backend, f"x{EMOJI}y".encode())
    _, detokenizer = detokenize(byte_level, output, stop=[EMOJI])
    assert (detokenizer.text, detokenizer.stop_reason) == ("x", EMOJI)


def test_a_stop_string_does_not_end_the_output_before_min_tokens(byte_level: Tokenizer) -> None:
    output = byte_level_ids(byte_level.backend, b"x.y.z.")
    _, detokenizer = detokenize(byte_level, output, stop=".", min_tokens=2)
    assert (detokenizer.text, detokenizer.stop_reason) == ("x.y", ".")


def test_the_ending_token_is_text_only_with_include_stop_str_in_output(
    byte_level: Tokenizer,
) -> None:
    hello = byte_level.backend.encode("hello").ids
    dot, eos = byte_level_ids(byte_level.backend, b".")[0], byte_level.eos_token_id
    assert eos == token_ids(byte_level.backend, [EOS])[0]

    def ended_by(token_id: int, **fields: Any) -> str:
        detokenizer = IncrementalDetokenizer(byte_level, [], SamplingParams(**fields))
        pieces = [detokenizer.push(token_id) for token_id in hello]
        return "".join([*pieces, detokenizer.finish(ending_token_id=token_id)])

    assert ended_by(dot) == "hello"
    assert ended_by(dot, include_stop_str_in_output=True) == "hello."
    assert ended_by(eos, include_stop_str_in_output=True) == "hello"
    assert (
        ended_by(eos, include_stop_str_in_output=True, skip_special_tokens=False) == f"hello{EOS}"
    )


@pytest.mark.parametrize("num_bytes", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("which", ["byte_level", "byte_fallback"])
def test_a_character_that_a_limit_cuts_is_left_out(
    request: pytest.FixtureRequest, which: str, num_bytes: int
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(which)
    ids_of = byte_level_ids if which == "byte_level" else byte_fallback_ids
    output = ids_of(tokenizer.backend, ("a" + HANGUL).encode() + EMOJI.encode()[:num_bytes])
    detokenizer = IncrementalDetokenizer(tokenizer, (), SamplingParams(max_tokens=None))
    pieces = [detokenizer.push(token_id) for token_id in output]
    pieces.append(detokenizer.cut())
    expected = "a" + HANGUL + (EMOJI if num_bytes == 4 else "")
    assert "".join(pieces) == detokenizer.text == expected


@pytest.mark.parametrize("fixture", ["byte_level", "byte_fallback"])
def test_a_limit_leaves_a_replacement_character_that_the_model_meant(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(fixture)
    ids_of = byte_level_ids if fixture == "byte_level" else byte_fallback_ids
    for text, begun, expected in (
        ("a\ufffd", b"", "a\ufffd"),
        ("a\ufffd\ufffd", b"", "a\ufffd\ufffd"),
        ("a", EMOJI.encode()[:3], "a"),
        ("a", b"\xef\xbf", "a"),
    ):
        detokenizer = IncrementalDetokenizer(tokenizer, [], SamplingParams())
        pieces = [detokenizer.push(i) for i in ids_of(tokenizer.backend, text.encode() + begun)]
        assert "".join([*pieces, detokenizer.cut()]) == expected, (text, begun)
