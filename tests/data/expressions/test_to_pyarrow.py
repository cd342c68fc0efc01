"""Expressions as pyarrow's own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

from skate.data._expressions.evaluate import mask
from skate.data._expressions.predicates import as_predicate
from skate.data.datatype import DataType
from skate.data.expressions import (
    Expr,
    NotExpressibleError,
    col,
    download,
    lit,
    monotonically_increasing_id,
    random,
    star,
    udf,
    unnest,
    uuid,
)


@udf(DataType.int64())
def mine(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("a"), pc.field("a")),
        (lit(1), pc.scalar(1)),
        (col("a") + 1, pc.add(pc.field("a"), pc.scalar(1))),
        (col("a") / 2, pc.divide(pc.field("a"), pc.scalar(2))),
        ((col("a") > 1).alias("x"), pc.greater(pc.field("a"), pc.scalar(1))),
        (~col("a"), pc.invert(pc.field("a"))),
        (col("a").is_null(), pc.is_null(pc.field("a"))),
        (col("a").is_in([1, 2]), pc.is_in(pc.field("a"), pa.array([1, 2]))),
        (col("a").str.starts_with("x"), pc.starts_with(pc.field("a"), "x")),
        (col("a").cast(DataType.int32()), pc.field("a").cast(pa.int32())),
        (col("a") ** 2, pc.power(pc.field("a"), pc.scalar(2))),
        (col("a").struct["x"].struct[0], pc.struct_field(pc.struct_field(pc.field("a"), ["x"]), [0])),
        (as_predicate(pc.field("a") > 1) & col("b"), pc.and_kleene(pc.field("a") > 1, pc.field("b"))),
    ],
)
def test_what_pyarrow_has_is_said_in_its_words(expr: Expr, expected: pc.Expression) -> None:
    assert expr.to_pyarrow().equals(expected)


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        (mine(col("a")), "UDF expressions cannot be converted"),
        (col("a").list.sort(), "UDF expressions cannot be converted"),
        (download("a"), "Download expressions cannot be converted"),
        (star(), "Star expressions cannot be converted"),
        (unnest(col("a")), "cannot be converted"),
        (random(), "cannot be converted"),
        (uuid() == "x", "cannot be converted"),
        (monotonically_increasing_id() > 1, "cannot be converted"),
        (col("a") // 2, "no division that rounds down"),
        (col("a") % 2 == 0, "no division that rounds down"),
        (lit(object()), "cannot be converted"),
        (col("a").is_in(col("b")), "values are not constants"),
    ],
)
def test_what_pyarrow_cannot_say_is_a_type_error_that_says_so(expr: Expr, reason: str) -> None:
    with pytest.raises(NotExpressibleError, match=reason) as caught:
        (expr & True).to_pyarrow()
    assert isinstance(caught.value, TypeError)


BLOCK = pa.table(
    {
        "i8": pa.array([1, 2, None], pa.int8()),
        "f": [1.0, 2.5, None],
        "s": ["a", "b", None],
        "u": ["a", "c", "d"],
        "d": pa.array(["a", "b", None]).dictionary_encode(),
        "t": pa.array([0, 10**9, None], pa.timestamp("ns")),
        "large": pa.array(["a", "b", None], pa.large_string()),
        "none": pa.nulls(3),
    }
)


@pytest.mark.parametrize(
    "expr",
    [
        col("s") + col("u") == "aa",
        col("d") + "x" == "ax",
        col("d").str.upper() == "A",
        col("d").is_in(["a", None]),
        col("d") == "a",
        col("i8").is_in([1, 300, 2.5]),
        col("f").is_in([1, 2]),
        col("f").not_in([1, None]),
        col("s").is_in([]),
        col("t") > pa.scalar(1, pa.timestamp("s")),
        col("large") + "x" == "ax",
        "x" + col("large") + col("s") == "xaa",
        col("large").is_in(["a", None]),
        (col("s") + col("none")).is_null(),
        (col("s") + None).is_null(),
    ],
)
def test_with_a_schema_a_reader_keeps_the_rows_that_a_filter_keeps(expr: Expr) -> None:
    read = pads.dataset(BLOCK).to_table(filter=expr.to_pyarrow(BLOCK.schema))
    assert read.equals(BLOCK.filter(mask(BLOCK, expr)))


def test_a_column_that_needs_no_cast_gets_none_since_readers_skip_by_plain_columns() -> None:
    expr = (col("s") + "x" == "ax") & col("s").is_in(["a"]) & (col("i8") > 1)
    assert "cast" not in str(expr.to_pyarrow(BLOCK.schema))
