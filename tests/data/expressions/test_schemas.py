"""Columns of a projection that are known before it runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skate.data.datatype import DataType
from skate.data.expressions import (
    Expr,
    col,
    download,
    expand_projection_exprs,
    expand_star_exprs,
    exprlist_to_fields,
    is_rename_expr,
    lit,
    monotonically_increasing_id,
    random,
    star,
    udf,
    unnest,
    uuid,
)

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.float32(), nullable=False, metadata={b"k": b"v"}),
        pa.field("s", pa.string()),
        pa.field("t", pa.bool_()),
        pa.field("r", pa.struct([("x", pa.int8()), ("y", pa.string())])),
    ]
)


@udf(DataType.int64())
def mine(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (lit(5), pa.field("v", pa.int64(), nullable=False)),
        (lit(None), pa.field("v", pa.null())),
        (col("a") + 5, pa.field("v", pa.int64())),
        (col("a") + col("b"), pa.field("v", pa.float32())),
        (col("a") // 2, pa.field("v", pa.int64())),
        (col("b") * 2.0, pa.field("v", pa.float64(), nullable=False)),
        (col("a") > 0, pa.field("v", pa.bool_())),
        (col("a").is_in([1]), pa.field("v", pa.bool_())),
        (col("s") + "!", pa.field("v", pa.string())),
        (col("a").is_null(), pa.field("v", pa.bool_(), nullable=False)),
        (~col("t"), pa.field("v", pa.bool_())),
        (col("s").str.split(","), pa.field("v", pa.list_(pa.string()))),
        (col("a").cast(DataType.string()), pa.field("v", pa.string())),
        (mine(col("s")), pa.field("v", pa.int64())),
        (download("s"), pa.field("v", pa.binary())),
        (monotonically_increasing_id(), pa.field("v", pa.int64(), nullable=False)),
        (random(), pa.field("v", pa.float64(), nullable=False)),
        (uuid(), pa.field("v", pa.string(), nullable=False)),
    ],
)
def test_the_field_of_an_expression_is_known_beforehand(expr: Expr, expected: pa.Field) -> None:
    assert expr.alias("v").to_field(SCHEMA) == expected
    assert expr.to_field(SCHEMA) is None  # without a name, there is no field


def test_the_field_of_a_column_is_passed_on() -> None:
    field = SCHEMA.field("b")
    assert field.equals(col("b").to_field(SCHEMA), check_metadata=True)
    assert field.with_name("c").equals(col("b").alias("c").to_field(SCHEMA), check_metadata=True)


@pytest.mark.parametrize("expr", [col("missing"), col("missing") + 1, col("s") + 1, star(), unnest(col("r"))])
def test_what_cannot_be_computed_has_no_type(expr: Expr) -> None:
    assert expr.get_type(SCHEMA) is None
    assert expr.output_type(SCHEMA) is None
    assert expr.to_field(SCHEMA) is None


def test_the_fields_of_a_projection_are_those_it_will_make() -> None:
    exprs = [star(), col("a")._rename("A"), (col("b") + 1).alias("b"), unnest(col("r")), lit(1).alias("n")]
    fields = exprlist_to_fields(exprs, SCHEMA)
    assert fields is not None
    assert [field.name for field in fields] == ["A", "b", "s", "t", "r", "x", "y", "n"]
    assert [field.type for field in fields[:3]] == [pa.int32(), pa.float32(), pa.string()]


@pytest.mark.parametrize(
    "exprs", [[col("missing")], [star(), col("missing")._rename("x")], [star(), unnest(col("a"))]]
)
def test_one_field_that_is_not_known_makes_the_fields_unknown(exprs: list[Expr]) -> None:
    assert exprlist_to_fields(exprs, SCHEMA) is None


def test_star_expands_to_the_columns_with_renames_in_place() -> None:
    rename = col("a")._rename("A")
    lost = col("missing")._rename("x")
    names = [expr.name for expr in expand_star_exprs([star(), lost, rename], SCHEMA)]
    assert names == ["A", "b", "s", "t", "r", "x"]


def test_without_star_or_schema_the_list_stays_what_it_is() -> None:
    exprs: list[Expr] = [col("a")]
    assert expand_star_exprs(exprs, SCHEMA) is exprs
    exprs = [star()]
    assert expand_star_exprs(exprs, None) is exprs
    assert expand_projection_exprs(exprs, None) is exprs


def test_a_rename_is_a_column_under_a_new_name() -> None:
    assert is_rename_expr(col("a")._rename("b"))
    assert not is_rename_expr(col("a").alias("b"))
    assert not is_rename_expr(col("a"))
