from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.runtime.text.stop_strings import StopStringMatcher

TEXT = st.text(alphabet="abc", max_size=24)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=3)


def run(pieces: Sequence[str], stops: Sequence[str], *, include: bool = False) -> list[str]:
    matcher = StopStringMatcher(stops, include_in_output=include)
    return [*(matcher.push(piece) for piece in pieces), matcher.flush()]


def test_text_is_cut_at_the_stop_string() -> None:
    assert run(["one END two"], ["END"]) == ["one ", ""]
    assert run(["one END two"], ["END"], include=True) == ["one END", ""]


def test_text_that_may_begin_a_stop_string_is_withheld_until_it_cannot() -> None:
    assert run(["a E", "N", "x E"], ["END"]) == ["a ", "", "ENx ", "E"]
    assert run(["a E", "N", "D b"], ["END"]) == ["a ", "", "", ""]


def test_a_stop_string_may_span_many_pieces_and_end_within_one() -> None:
    matcher = StopStringMatcher(["</tool>"], include_in_output=False)
    assert [matcher.push(piece) for piece in ["x<", "/t", "oo", "l>y", "z"]] == [
        "x",
        "",
        "",
        "",
        "",
    ]
    assert matcher.matched == "</tool>"


def test_without_stop_strings_nothing_is_withheld() -> None:
    assert run(["abc", "", "d"], []) == ["abc", "", "d", ""]


def test_the_string_that_is_whole_first_wins_and_the_longest_of_those() -> None:
    for stops in (["bcd", "c"], ["c", "bcd"]):
        matcher = StopStringMatcher(stops, include_in_output=False)
        assert matcher.push("abcd") == "ab"
        assert matcher.matched == "c"
    matcher = StopStringMatcher(["c", "abc", "bc"], include_in_output=False)
    assert matcher.push("xabc") == "x"
    assert matcher.matched == "abc"


def test_a_stop_string_must_end_behind_the_exempt_text() -> None:
    matcher = StopStringMatcher(["aa"], include_in_output=False)
    assert matcher.push("aaa", may_match=False) == "aa"  # the last "a" may begin one
    assert matcher.push("b") == "ab"
    assert matcher.push("aa") == ""
    assert matcher.matched == "aa"


def test_a_stop_string_may_begin_in_the_exempt_text() -> None:
    matcher = StopStringMatcher(["abc"], include_in_output=False)
    assert matcher.push("xab", may_match=False) == "x"
    assert matcher.push("c") == ""
    assert matcher.matched == "abc"


def reference(text: str, stops: Sequence[str], *, include: bool) -> tuple[str, str | None]:
    """Look for a stop string at the end of every longer and longer beginning of the text."""
    for end in range(1, len(text) + 1):
        whole = [stop for stop in stops if text[:end].endswith(stop)]
        if whole:
            stop = max(whole, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(text=TEXT, stops=STOPS, include=st.booleans(), data=st.data())
def test_the_result_does_not_depend_on_how_the_text_is_split(
    text: str, stops: list[str], include: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
    pieces = [text[start:end] for start, end in bounds]
    matcher = StopStringMatcher(stops, include_in_output=include)
    shown = "".join([*(matcher.push(piece) for piece in pieces), matcher.flush()])
    assert (shown, matcher.matched) == reference(text, stops, include=include)


@given(text=TEXT, stops=STOPS)
def test_what_is_withheld_is_always_the_beginning_of_a_stop_string(
    text: str, stops: list[str]
) -> None:
    matcher = StopStringMatcher(stops, include_in_output=False)
    shown = ""
    for end, character in enumerate(text, start=1):
        shown += matcher.push(character)
        if matcher.matched is not None:
            break
        withheld = text[len(shown) : end]
        assert text[:end] == shown + withheld
        assert not withheld or any(stop.startswith(withheld) and stop != withheld for stop in stops)
