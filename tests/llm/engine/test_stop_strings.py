from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.llm._engine.stop_strings import StopStrings


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Cut a whole text, the obvious way."""
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


def stream(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    text = "".join(matcher.add(piece) for piece in pieces)
    return text + matcher.finish(), matcher.found


texts = st.text("ab🤖\n", max_size=12)


@given(st.lists(texts, max_size=8), st.lists(st.text("ab🤖\n", min_size=1, max_size=5), max_size=4))
def test_pieces_are_cut_where_the_whole_text_is(pieces: list[str], stops: list[str]) -> None:
    assert stream(pieces, stops) == cut("".join(pieces), stops)


@given(texts, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_no_more_is_held_back_than_may_be_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopStrings(stops)
    passed = matcher.add(text)
    if matcher.found is None:
        held = text[len(passed) :]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("stops", "text", "kept", "found"),
    [
        (["bc", "abcd"], "xabcd", "xa", "bc"),  # complete first
        (["c", "bc", "abc"], "xabc", "x", "abc"),  # complete at once: the longest
        (["aab"], "aaab", "a", "aab"),
        (["b", "b"], "ab", "a", "b"),
    ],
)
def test_the_stop_string_that_is_complete_first_wins(
    stops: list[str], text: str, kept: str, found: str
) -> None:
    assert stream([text], stops) == (kept, found)
    assert stream(list(text), stops) == (kept, found)


def test_long_stop_strings_take_time_in_proportion_to_the_text() -> None:
    matcher = StopStrings(["a" * 20_000 + "b"])
    for _ in range(100):
        assert matcher.add("a" * 100) == ""
    assert matcher.add("c") == "a" * 10_000 + "c"
