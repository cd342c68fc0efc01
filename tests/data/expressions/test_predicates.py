"""Predicates as users give them: strings and other things."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skate.data._expressions.evaluate import mask
from skate.data._expressions.predicates import as_predicate, parse
from skate.data.expressions import Expr, PredicateSyntaxError, col, lit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 3", col("a") > 3),
        ("  a > 3\n", col("a") > 3),
        ("3 > a", lit(3) > col("a")),
        ("a == -1", col("a") == -1),
        ("a == +1.5", col("a") == 1.5),
        ("-a > 3", -col("a") > 3),
        ("a.b.c != 'x'", col("a.b.c") != "x"),
        ("a and b and not c", (col("a") & col("b")) & ~col("c")),
        ("a & (b | ~c)", col("a") & (col("b") | ~col("c"))),
        ("1 < a <= 5", (lit(1) < col("a")) & (col("a") <= 5)),
        ("a in [1, None, -2]", col("a").is_in([1, None, -2])),
        ("a not in ('x',)", col("a").not_in(["x"])),
        ("a in []", col("a").is_in([])),
        ("a is None", col("a").is_null()),
        ("a is not None", col("a").is_not_null()),
        ("is_null(a)", col("a").is_null()),
        ("is_valid(a)", col("a").is_not_null()),
        ("abs(a + 1) > 2", (col("a") + 1).abs() > 2),
        ("lower(s) == 'x'", col("s").str.lower() == "x"),
        ("True", lit(True)),
    ],
)
def test_a_string_is_read_as_the_expression_it_says(text: str, expected: Expr) -> None:
    assert parse(text).structurally_equals(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bad filter", "Invalid syntax in the expression 'bad filter'"),
        ("", "Invalid syntax"),
        ("a = 3", "Invalid syntax"),
        ("a > 3; b", "Invalid syntax"),
        ("a\0", "Invalid syntax"),
        ("__import__('os')", "is not allowed.*the functions are is_null"),
        ("is_null(a, b)", "is not allowed"),
        ("is_null(x=a)", "is not allowed"),
        ("a.upper() == 'A'", "is not allowed"),
        ("a if b else c", "is not allowed"),
        ("[x for x in a]", "is not allowed"),
        ("lambda: a", "is not allowed"),
        ("a[0] > 1", "is not allowed"),
        ("a @ b", "is not allowed"),
        ("f'{a}' == 'x'", "is not allowed"),
        ("a in b", "in needs a list of literals"),
        ("a in [b]", "a list may hold literals only"),
        ("a is 3", "compare other values with == and !="),
        ("(a + b).c > 1", "only the name of a column may contain a dot"),
    ],
)
def test_a_string_that_is_no_predicate_is_refused_with_the_part_that_is_not(text: str, problem: str) -> None:
    with pytest.raises(PredicateSyntaxError, match=problem) as caught:
        parse(text)
    assert isinstance(caught.value, ValueError)


def test_nan_is_found_by_a_function_and_not_by_null() -> None:
    block = pa.table({"x": [float("nan"), None, 1.0]})
    assert mask(block, parse("is_nan(x)")).to_pylist() == [True, False, False]
    assert mask(block, parse("is_null(x)")).to_pylist() == [False, True, False]


def test_expressions_of_both_kinds_and_strings_are_predicates() -> None:
    expr = col("a") > 1
    assert as_predicate(expr) is expr
    assert as_predicate("a > 1").structurally_equals(expr)
    assert as_predicate(pc.field("a") > 1).reads_all_columns()


@pytest.mark.parametrize("value", [3, None, lambda row: True])
def test_anything_else_is_not(value: Any) -> None:
    with pytest.raises(TypeError, match="a predicate is an expression"):
        as_predicate(value)
