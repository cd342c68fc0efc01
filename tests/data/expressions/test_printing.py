"""How expressions print."""

from __future__ import annotations

import textwrap
from typing import Any

import pyarrow.compute as pc
import pytest

from skate.data._expressions.predicates import as_predicate
from skate.data._expressions.printing import inline
from skate.data.datatype import DataType
from skate.data.expressions import (
    Expr,
    UDFExpr,
    col,
    download,
    lit,
    monotonically_increasing_id,
    random,
    star,
    unnest,
    uuid,
)


def scale(x: Any, by: Any) -> Any:
    return x


SCALED = UDFExpr(scale, (col("value"),), {"by": lit(10)}, DataType.int64())


def test_a_tree_has_a_line_for_each_node() -> None:
    expr = ~(((col("a") + 1 >= lit(2.5)) & col("b").is_not_null()).alias("kept") | (SCALED - star()))
    expected = """\
        NOT
            └── operand: OR
                ├── left: ALIAS('kept')
                │   └── AND
                │       ├── left: GE
                │       │   ├── left: ADD
                │       │   │   ├── left: COL('a')
                │       │   │   └── right: LIT(1)
                │       │   └── right: LIT(2.5)
                │       └── right: IS_NOT_NULL
                │           └── operand: COL('b')
                └── right: SUB
                    ├── left: UDF(scale)
                    │   ├── arg[0]: COL('value')
                    │   └── kwarg['by']: LIT(10)
                    └── right: COL(*)"""
    assert repr(expr) == textwrap.dedent(expected)
    assert str(expr) == repr(expr)


@pytest.mark.parametrize(
    ("expr", "tree"),
    [
        (download("uri"), "DOWNLOAD('uri')"),
        (random(seed=3), "RANDOM(seed=3, reseed_after_execution=True)"),
        (uuid(), "UUID()"),
        (monotonically_increasing_id(), "MONOTONICALLY_INCREASING_ID()"),
        (col("a")._rename("b"), "ALIAS('b') [rename]\n    └── COL('a')"),
        (unnest(col("a")), "UNNEST\n    └── COL('a')"),
        (as_predicate(pc.field("a") > 1), "ARROW((a > 1))"),
    ],
)
def test_every_kind_of_node_has_a_title(expr: Expr, tree: str) -> None:
    assert repr(expr) == tree


@pytest.mark.parametrize(
    ("expr", "line"),
    [
        ((col("a") + 1) * 2, "(col('a') + 1) * 2"),
        (~(col("a") == "x"), "~(col('a') == 'x')"),
        (col("a").is_null().alias("b"), "col('a').is_null().alias('b')"),
        (col("a").not_in([1]), "col('a') not in [1]"),
        (col("a").str.upper(), "str.upper(col('a'))"),
        (SCALED, "scale(col('value'), by=10)"),
        (star(), "col(*)"),
        (random(), "random()"),
        (download("uri"), "download('uri')"),
        (unnest(col("a")), "unnest(col('a'))"),
        (as_predicate(pc.field("a") > 1), "(a > 1)"),
        (lit("x" * 1000), "'" + "x" * 58 + "…"),
    ],
)
def test_a_line_reads_like_python(expr: Expr, line: str) -> None:
    assert inline(expr) == line
