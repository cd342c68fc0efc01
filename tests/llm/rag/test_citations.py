"""Citations are checked while the answer streams."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rag.citations import CitationChecker

PASSAGES = [
    "Large arrays are shared without copies. Tasks read them in place.",
    "Actors keep state between calls and restart after a crash.",
]


def checked(answer: str, size: int = 1) -> tuple[str, set[int]]:
    checker = CitationChecker(PASSAGES)
    pieces = [answer[start : start + size] for start in range(0, len(answer), size)]
    return "".join(map(checker.add, pieces)) + checker.finish(), checker.cited


def test_a_right_citation_stays_and_a_wrong_one_goes() -> None:
    assert checked("Large arrays are shared [1].") == ("Large arrays are shared [1].", {1})
    assert checked("Large arrays are shared. [1] Actors keep state [2].")[1] == {1, 2}
    assert checked("Large arrays are shared [7].") == ("Large arrays are shared. [1]", {1})
    assert checked("Actors keep state [1].") == ("Actors keep state. [2]", {2})
    assert checked("Large arrays are shared [1, 2].") == ("Large arrays are shared [1].", {1})


def test_a_sentence_without_a_citation_gets_the_passage_that_supports_it() -> None:
    assert checked("Arrays are shared. Actors keep state!") == (
        "Arrays are shared. [1] Actors keep state! [2]",
        {1, 2},
    )
    assert (
        checked("Arrays are shared\nActors keep state")[0] == "Arrays are shared [1]\nActors keep state [2]"
    )


def test_a_sentence_that_no_passage_supports_gets_none() -> None:
    assert checked("The moon consists of green cheese [1].") == ("The moon consists of green cheese.", set())
    assert checked("The moon consists of green cheese.")[1] == set()


def test_abbreviations_and_versions_end_no_sentence() -> None:
    assert checked("Large arrays, e.g. shared ones, need Python 3.11.")[0].count("[") <= 1
    assert checked("[1]") == ("", set())
    assert checked("") == ("", set())


@given(st.text(st.sampled_from("arys shed.[]12,9 \n!keptalsc"), max_size=120), st.integers(1, 7))
def test_the_pieces_make_no_difference_to_the_words_and_no_unknown_source_is_cited(
    answer: str, size: int
) -> None:
    text, cited = checked(answer, size)
    assert cited <= {1, 2}
    assert set(map(int, re.findall(r"\[(\d+)\]", text))) <= {1, 2}

    def plain(value: str) -> str:
        return re.sub(r"\s", "", re.sub(r"\[[\d\s,]*\]", "", value))

    assert plain(text) == plain(answer)
