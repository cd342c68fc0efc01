"""Trees of expressions: how they are built, compared, renamed and substituted."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pyarrow as pa
import pytest

from skate.data.datatype import DataType
from skate.data.expressions import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    Expr,
    LiteralExpr,
    Operation,
    PyArrowComputeUDFExpr,
    UDFExpr,
    UnaryExpr,
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


def test_a_value_beside_an_operator_becomes_a_literal() -> None:
    expr = 1 - col("a")
    assert isinstance(expr, BinaryExpr)
    assert expr.op is Operation.SUB
    assert isinstance(expr.left, LiteralExpr)
    assert expr.left.value == 1
    assert isinstance(expr.right, ColumnExpr)


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        (col("a").is_null(), UnaryExpr),
        (~col("a"), UnaryExpr),
        (col("a").alias("b"), AliasExpr),
        (col("a").is_in([1]), BinaryExpr),
        (col("a").ceil(), PyArrowComputeUDFExpr),
        (col("a") ** 2, PyArrowComputeUDFExpr),
        (2 ** col("a"), PyArrowComputeUDFExpr),
        (-col("a"), PyArrowComputeUDFExpr),
        (abs(col("a")), PyArrowComputeUDFExpr),
        (True & col("a"), BinaryExpr),
        (col("a").list.sort(), UDFExpr),
    ],
)
def test_an_operator_or_method_makes_its_node(expr: Expr, kind: type[Expr]) -> None:
    assert isinstance(expr, kind)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (col("a"), col("a")),
        (lit(1), lit(1)),
        (lit([1, {"x": 2}]), lit([1, {"x": 2}])),
        (lit(math.nan), lit(math.nan)),
        ((col("a") + 1) * col("b"), (col("a") + 1) * col("b")),
        (col("a").str.slice(0, 3), col("a").str.slice(0, 3)),
        (col("a").cast(DataType.int32()), col("a").cast(pa.int32())),
        (random(seed=1), random(seed=1)),
        (uuid(), uuid()),
        (download("a"), download("a")),
        (star(), star()),
        (unnest(col("a")), unnest(col("a"))),
    ],
)
def test_trees_of_the_same_nodes_are_structurally_equal(one: Expr, other: Expr) -> None:
    assert one.structurally_equals(other)
    assert other.structurally_equals(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (col("a"), col("A")),
        (col("a"), lit("a")),
        (lit(1), lit(1.0)),
        (lit(1), lit(True)),
        (lit([1]), lit((1,))),
        (lit([1]), lit([1.0])),
        (lit(0.0), lit(-0.0)),
        (col("a") + col("b"), col("b") + col("a")),
        (col("a") + 1, col("a") - 1),
        (col("a").alias("x"), col("a")),
        (col("a").alias("x"), col("a")._rename("x")),
        (col("a").str.slice(0, 3), col("a").str.slice(0, 4)),
        (col("a").str.upper(), col("a").str.lower()),
        (col("a").cast(DataType.int32()), col("a").cast(DataType.int32(), safe=False)),
        (col("a").list.sort(), col("a").list.sort("descending")),
        (random(seed=1), random(seed=2)),
        (random(seed=1), random(seed=1, reseed_after_execution=False)),
        (download("a"), download("b")),
        (col("a"), "a"),
    ],
)
def test_trees_that_differ_anywhere_are_not_structurally_equal(one: Expr, other: Any) -> None:
    assert not one.structurally_equals(other)


def test_a_row_number_is_not_even_structurally_equal_to_itself() -> None:
    expr = monotonically_increasing_id()
    assert not expr.structurally_equals(expr)


def test_functions_are_equal_if_they_are_the_same_and_get_the_same() -> None:
    @udf(DataType.int64())
    def one(x: Any) -> Any:
        return x

    @udf(DataType.int64())
    def two(x: Any) -> Any:
        return x

    assert one(col("a")).structurally_equals(one(col("a")))
    assert not one(col("a")).structurally_equals(two(col("a")))
    assert not one(col("a")).structurally_equals(one(x=col("a")))


def test_callable_classes_are_equal_if_they_are_constructed_alike() -> None:
    @udf(DataType.int64())
    class Add:
        def __init__(self, offset: int) -> None:
            self.offset = offset

        def __call__(self, x: Any) -> Any:
            return x

    assert Add(5)(col("a")).structurally_equals(Add(5)(col("a")))
    assert not Add(5)(col("a")).structurally_equals(Add(6)(col("a")))


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"col\('a'\) == 1 has a value for each row.*use|combine.*&"):
        bool(col("a") == 1)
    with pytest.raises(TypeError, match="combine expressions with &"):
        assert 1 < col("a") < 3


@pytest.mark.parametrize("name", [3, None, b"a"])
def test_a_column_is_named_by_a_string(name: Any) -> None:
    with pytest.raises(TypeError, match="a string"):
        col(name)
    with pytest.raises(TypeError, match="as a string"):
        col("a").alias(name)
    with pytest.raises(TypeError, match="`uri_column_name` must be a string"):
        download(name)


def test_a_literal_of_an_expression_is_refused() -> None:
    with pytest.raises(TypeError, match="got an expression"):
        lit(col("a"))


@pytest.mark.parametrize("values", ["ab", b"ab", 5, None])
def test_membership_needs_a_list(values: Any) -> None:
    with pytest.raises(TypeError, match="take a list of values"):
        col("a").is_in(values)


@pytest.mark.parametrize(
    ("expr", "name"),
    [
        (col("a"), "a"),
        (col("a").alias("b"), "b"),
        (col("a").alias("b").alias("c"), "c"),
        (col("a") + 1, None),
        (lit(1), None),
        (uuid(), None),
        (star(), None),
    ],
)
def test_only_columns_and_aliases_have_a_name(expr: Expr, name: str | None) -> None:
    assert expr.name == name


def test_columns_are_those_of_the_whole_tree() -> None:
    expr = ((col("a") + 1) * col("b").abs()).alias("c") > download("uri")
    assert expr.columns() == {"a", "b", "uri"}
    assert lit(1).columns() == set()
    assert not expr.reads_all_columns()
    assert (star() == 1).reads_all_columns()


@pytest.mark.parametrize("expr", [random(), random(seed=1), uuid(), monotonically_increasing_id()])
def test_what_differs_each_time_is_not_deterministic_and_nor_is_what_holds_it(expr: Expr) -> None:
    assert not (expr == col("a")).is_deterministic()
    assert not (expr == col("a")).is_idempotent()
    assert (col("a") + 1).is_deterministic()


def test_substitution_puts_expressions_in_place_of_columns() -> None:
    expr = (col("b") > 3) & col("c").is_null()
    expected = ((col("a") + 1) > 3) & col("c").is_null()
    assert expr.substitute({"b": (col("a") + 1).alias("b")}).structurally_equals(expected)


def test_substitution_keeps_the_name_of_a_column() -> None:
    replaced = col("b").substitute({"b": col("a") + 1})
    assert replaced.name == "b"
    assert replaced.structurally_equals((col("a") + 1).alias("b"))
    assert col("b").alias("c").substitute({"b": col("a")}).structurally_equals(col("a").alias("c"))


def test_substitution_swaps_columns_at_once() -> None:
    expr = col("a") - col("b")
    assert expr.substitute({"a": col("b"), "b": col("a")}).structurally_equals(col("b") - col("a"))


def test_substitution_leaves_a_tree_alone_that_reads_none_of_the_columns() -> None:
    expr = col("a").str.upper() + "x"
    assert expr.substitute({"b": col("c")}) is expr


def test_substitution_reaches_into_functions_and_downloads() -> None:
    @udf(DataType.int64())
    def add(x: Any, y: Any) -> Any:
        return x

    replaced = add(col("a"), y=col("b")).substitute({"b": col("c") * 2})
    assert replaced.columns() == {"a", "c"}
    replaced = download("uri").substitute({"uri": lit("file://") + col("path")})
    assert replaced.columns() == {"path"}


def test_a_rename_is_a_plain_alias_once_it_renames_no_column() -> None:
    renamed = col("a")._rename("b")
    assert renamed.substitute({"a": col("c")}).structurally_equals(col("c")._rename("b"))
    assert renamed.substitute({"a": col("c") + 1}).structurally_equals((col("c") + 1).alias("b"))


def test_an_expression_survives_pickling() -> None:
    expr = ((col("a") + 1).str.upper().alias("b") == lit([1, 2])).is_in([None, 3.5])
    expr.fingerprint()
    copy = pickle.loads(pickle.dumps(expr))
    assert copy.structurally_equals(expr)


def test_two_random_nodes_stay_different_after_pickling() -> None:
    one, other = pickle.loads(pickle.dumps((random(), random())))
    assert one._instance_id != other._instance_id
