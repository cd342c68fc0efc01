"""Suggestions for misspelled names."""

from __future__ import annotations

import pytest

from skate._base.suggestions import closest, did_you_mean

OPTIONS = ("name", "num_cpus", "num_gpus")


@pytest.mark.parametrize(
    ("word", "expected"),
    [("num_cpu", "num_cpus"), ("numgpus", "num_gpus"), ("nam", "name"), ("color", None), ("", None)],
)
def test_the_most_similar_word_is_found(word: str, expected: str | None) -> None:
    assert closest(word, OPTIONS) == expected


def test_a_stricter_limit_finds_fewer_words() -> None:
    assert closest("nm", OPTIONS) == "name"
    assert closest("nm", OPTIONS, alike=0.9) is None


def test_a_suggestion_is_a_sentence_to_append() -> None:
    assert f"No such option.{did_you_mean('num_cpu', OPTIONS)}" == "No such option. Did you mean 'num_cpus'?"
    assert f"No such option.{did_you_mean('color', OPTIONS)}" == "No such option."
