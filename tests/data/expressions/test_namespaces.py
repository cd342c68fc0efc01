"""The functions of text, lists, records, tensors and times."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skate.data._block.tensors import from_ndarray
from skate.data._expressions.evaluate import project
from skate.data.expressions import Expr, ExpressionTypeError, ExpressionValueError, col


def values(expr: Expr, column: Any) -> list[Any]:
    found: list[Any] = project(pa.table({"c": column}), [expr.alias("y")]).column("y").to_pylist()
    return found


TEXT = col("c").str


@pytest.mark.parametrize(
    ("expr", "text", "expected"),
    [
        (TEXT.capitalize(), "aB c", "Ab c"),
        (TEXT.title(), "ab cd", "Ab Cd"),
        (TEXT.is_decimal(), "12", True),
        (TEXT.is_numeric(), "½", True),
        (TEXT.is_title(), "Ab Cd", True),
        (TEXT.is_printable(), "a\n", False),
        (TEXT.starts_with("A"), "Alice", True),
        (TEXT.starts_with("a", ignore_case=True), "Alice", True),
        (TEXT.ends_with("e"), "Alice", True),
        (TEXT.contains("li"), "Alice", True),
        (TEXT.match("A%e"), "Alice", True),
        (TEXT.match_regex("^A.*e$"), "Alice", True),
        (TEXT.find("i"), "Alice", 2),
        (TEXT.find("x"), "Alice", -1),
        (TEXT.find_regex("[ic]"), "Alice", 2),
        (TEXT.count("a"), "banana", 3),
        (TEXT.count_regex("an"), "banana", 2),
        (TEXT.slice(1, 4), "hello", "ell"),
        (TEXT.slice(1), "hello", "ello"),
        (TEXT.replace("a", "X", max_replacements=2), "aaa", "XXa"),
        (TEXT.replace_regex("(a)(b)", r"\2\1"), "abab", "baba"),
        (TEXT.replace_slice(0, 1, "Z"), "ab", "Zb"),
        (TEXT.split(","), "a,b", ["a", "b"]),
        (TEXT.split(",", max_splits=1), "a,b,c", ["a", "b,c"]),
        (TEXT.split_regex("[,;]"), "a,b;c", ["a", "b", "c"]),
        (TEXT.split_whitespace(), " a b", ["", "a", "b"]),
        (TEXT.extract(r"(?P<x>\d)-(?P<y>\d)"), "1-2", {"x": "1", "y": "2"}),
        (TEXT.repeat(3), "ab", "ababab"),
        (TEXT.center(6, "*"), "hi", "**hi**"),
        (TEXT.lpad(5, "*"), "hi", "***hi"),
        (TEXT.rpad(5, "*"), "hi", "hi***"),
        (TEXT.pad(5, "*", "left"), "hi", "***hi"),
        (TEXT.pad(5, "*", "right"), "hi", "hi***"),
        (TEXT.pad(6, "*", "both"), "hi", "**hi**"),
        (TEXT.strip("x"), "xxaxx", "a"),
        (TEXT.lstrip("x"), "xxaxx", "axx"),
        (TEXT.rstrip("x"), "xxaxx", "xxa"),
        (TEXT.len() > 3, "Alice", True),
    ],
)
def test_functions_of_text(expr: Expr, text: str, expected: Any) -> None:
    assert values(expr, [text, None]) == [expected, None]
    assert values(expr, pa.array([text, None], pa.large_string())) == [expected, None]


def test_padding_is_on_a_side_there_is() -> None:
    with pytest.raises(ValueError, match="side must be 'left', 'right' or 'both', got 'top'"):
        TEXT.pad(3, side="top")  # type: ignore[arg-type]  # the mistake


LISTS = [[1, 2, 3], [4], None]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("c").list.len(), [3, 1, None]),
        (col("c").list.get(0), [1, 4, None]),
        (col("c").list[np.int64(0)], [1, 4, None]),
        (col("c").list[1:], [[2, 3], [], None]),
        (col("c").list[:2], [[1, 2], [4], None]),
        (col("c").list[::2], [[1, 3], [4], None]),
        (col("c").list.slice(0, 1), [[1], [4], None]),
        (col("c").list.len() + 1, [4, 2, None]),
    ],
)
def test_functions_of_lists(expr: Expr, expected: list[Any]) -> None:
    assert values(expr, LISTS) == expected
    assert values(expr, pa.array(LISTS, pa.large_list(pa.int64()))) == expected


@pytest.mark.parametrize("index", ["0", 1.5, True, None])
def test_a_list_has_integers_and_slices_for_indices(index: Any) -> None:
    with pytest.raises(TypeError, match="List indices must be integers or slices"):
        col("c").list[index]


def test_an_element_has_to_be_there() -> None:
    with pytest.raises(ExpressionValueError, match=r"list.get.*out of bounds"):
        values(col("c").list[2], LISTS)


@pytest.mark.parametrize("expr", [col("c").list.sort(), col("c").list.flatten(), col("c").list.len()])
def test_only_lists_have_the_functions_of_lists(expr: Expr) -> None:
    with pytest.raises(ExpressionTypeError, match=r"col\('c'\) is int64"):
        values(expr, [1, 2])


def test_only_lists_of_lists_flatten() -> None:
    with pytest.raises(ExpressionTypeError, match="whose elements are lists"):
        values(col("c").list.flatten(), LISTS)


def test_lists_of_one_length_sort_and_flatten_too() -> None:
    column = pa.array([[2, 1], None], pa.list_(pa.int64(), 2))
    assert values(col("c").list.sort(), column) == [[1, 2], None]
    nested = pa.array([[[2, 1], [0, 5]]], pa.list_(pa.list_(pa.int64(), 2), 2))
    assert values(col("c").list.flatten(), nested) == [[2, 1, 0, 5]]


@pytest.mark.parametrize(("option", "value"), [("order", "up"), ("null_placement", "middle")])
def test_a_sort_has_the_options_there_are(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option} is .*, not '{value}'"):
        col("c").list.sort(**{option: value})


def test_lists_of_one_length_and_tensors_become_plain_lists() -> None:
    expr = col("c").arr.to_list()
    assert values(expr, pa.array([[1, 2], None], pa.list_(pa.int64(), 2))) == [[1, 2], None]
    assert values(expr, LISTS) == LISTS
    assert values(expr, from_ndarray(np.arange(8).reshape(2, 2, 2))) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ExpressionValueError, match=r"to_list\(\) can only be called on list-like columns"):
        values(expr, [1])


RECORDS = [{"name": "a", "at": {"x.y": 1}}, None]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("c").struct.field("name"), ["a", None]),
        (col("c").struct["name"], ["a", None]),
        (col("c").struct[0], ["a", None]),
        (col("c").struct.field_by_index(0), ["a", None]),
        (col("c").struct["at"].struct["x.y"], [1, None]),
    ],
)
def test_functions_of_records(expr: Expr, expected: list[Any]) -> None:
    assert values(expr, RECORDS) == expected


def test_a_field_is_named_or_counted() -> None:
    with pytest.raises(TypeError, match="Struct indices must be strings or integers"):
        col("c").struct[True]
    with pytest.raises(TypeError, match="Struct field index must be an integer"):
        col("c").struct.field_by_index("1")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="field_by_index counts from 0: the index -1 is negative"):
        col("c").struct[-1]
    with pytest.raises(ExpressionValueError, match="nope"):
        values(col("c").struct["nope"], RECORDS)


def test_only_mappings_have_keys() -> None:
    with pytest.raises(ExpressionTypeError, match="only maps"):
        values(col("c").map.keys(), LISTS)


WHEN = datetime.datetime(2024, 1, 2, 10, 30, 45)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("c").dt.year(), 2024),
        (col("c").dt.month(), 1),
        (col("c").dt.day(), 2),
        (col("c").dt.hour(), 10),
        (col("c").dt.minute(), 30),
        (col("c").dt.second(), 45),
        (col("c").dt.strftime("%Y/%m"), "2024/01"),
        (col("c").dt.floor("day"), datetime.datetime(2024, 1, 2)),
        (col("c").dt.ceil("day"), datetime.datetime(2024, 1, 3)),
        (col("c").dt.round("hour"), datetime.datetime(2024, 1, 2, 11)),
        (col("c") - WHEN, datetime.timedelta()),
        (col("c") > datetime.datetime(2020, 1, 1), True),
    ],
)
def test_functions_of_times(expr: Expr, expected: Any) -> None:
    assert values(expr, [WHEN, None]) == [expected, None]


def test_times_round_to_units_there_are() -> None:
    with pytest.raises(ValueError, match=r"unit must be one of year, .*, got 'decade'"):
        col("c").dt.floor("decade")  # type: ignore[arg-type]  # the mistake
