"""Environment variables, by Skate's name and by Ray's."""

from __future__ import annotations

import pytest

from skate._base import variables


@pytest.fixture
def setenv(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for prefix in variables.PREFIXES:
        monkeypatch.delenv(f"{prefix}SOME", raising=False)
    return monkeypatch


def test_skates_name_counts_before_rays(setenv: pytest.MonkeyPatch) -> None:
    assert variables.text("SOME") is None
    setenv.setenv("RAY_SOME", "theirs")
    assert variables.find("SOME") == ("RAY_SOME", "theirs")
    setenv.setenv("SKATE_SOME", "ours")
    assert variables.text("SOME") == "ours"


def test_an_empty_variable_is_not_set(setenv: pytest.MonkeyPatch) -> None:
    setenv.setenv("SKATE_SOME", "")
    assert variables.number("SOME", 5.0) == 5.0
    setenv.setenv("RAY_SOME", "7")
    assert variables.number("SOME", 5.0) == 7.0


@pytest.mark.parametrize(("word", "value"), [("1", True), ("TRUE", True), ("0", False), ("off", False)])
def test_a_flag_is_on_or_off(setenv: pytest.MonkeyPatch, word: str, value: bool) -> None:
    setenv.setenv("RAY_SOME", word)
    assert variables.flag("SOME", not value) is value


def test_a_value_of_the_wrong_kind_is_an_error_with_the_name(setenv: pytest.MonkeyPatch) -> None:
    setenv.setenv("RAY_SOME", "a(")
    with pytest.raises(ValueError, match=r"RAY_SOME is 'a\(': set it to 1 or 0"):
        variables.flag("SOME", False)
    with pytest.raises(ValueError, match="RAY_SOME must be a number"):
        variables.number("SOME", 1)
    with pytest.raises(ValueError, match="RAY_SOME must be an integer"):
        variables.integer("SOME", 1)
    with pytest.raises(ValueError, match=r"RAY_SOME is .* not a regular expression"):
        variables.pattern("SOME")


def test_a_number_out_of_range_is_an_error_with_the_range(setenv: pytest.MonkeyPatch) -> None:
    setenv.setenv("SKATE_SOME", "-3")
    with pytest.raises(ValueError, match="SKATE_SOME must be at least 0 and at most 1, got '-3'"):
        variables.number("SOME", 0, at_least=0, at_most=1)
    with pytest.raises(ValueError, match="SKATE_SOME must be at least 0, got '-3'"):
        variables.integer("SOME", 0, at_least=0)
    setenv.setenv("SKATE_SOME", "nan")
    with pytest.raises(ValueError, match="SKATE_SOME must be at least 0"):
        variables.number("SOME", 0, at_least=0)


def test_a_regular_expression_is_compiled(setenv: pytest.MonkeyPatch) -> None:
    assert variables.pattern("SOME") is None
    setenv.setenv("RAY_SOME", "^a+$")
    found = variables.pattern("SOME")
    assert found is not None
    assert found.search("aaa")
