"""Evaluation on blocks: projections, masks, nulls, shared parts, errors."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skate.data._block.tensors import VariableShapedTensorType
from skate.data._expressions.evaluate import mask, project
from skate.data._expressions.predicates import as_predicate
from skate.data.datatype import DataType
from skate.data.expressions import (
    ColumnNotFoundError,
    Expr,
    ExpressionError,
    ExpressionTypeError,
    ExpressionValueError,
    UDFExpr,
    col,
    lit,
    star,
    udf,
    unnest,
    uuid,
)

BLOCK = pa.table(
    {
        "a": [1, 2, None],
        "b": [10.0, None, 30.0],
        "s": ["x", None, "z"],
        "t": [True, None, False],
        "d": pa.array(["p", "q", "p"]).dictionary_encode(),
    }
)


def values(expr: Expr, block: pa.Table = BLOCK) -> list[Any]:
    found: list[Any] = project(block, [expr.alias("value")]).column("value").to_pylist()
    return found


def counting_udf() -> tuple[Any, list[int]]:
    calls: list[int] = []

    @udf(DataType.int64())
    def counted(x: pa.ChunkedArray) -> pa.ChunkedArray:
        calls.append(len(x))
        return pc.add(x, 1)

    return counted, calls


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("a") + col("b"), [11.0, None, None]),
        (col("a") == None, [None, None, None]),  # noqa: E711 -- it builds an expression
        (col("a").is_null(), [False, False, True]),
        (col("a").is_not_null(), [True, True, False]),
        (col("t") & False, [False, False, False]),
        (col("t") | True, [True, True, True]),
        (col("t") & True, [True, None, False]),
        (~col("t"), [False, None, True]),
        (col("s") + "!", ["x!", None, "z!"]),
        ("<" + col("d"), ["<p", "<q", "<p"]),
        (col("d") == "p", [True, False, True]),
        (col("d").str.upper(), ["P", "Q", "P"]),
        (lit(3), [3, 3, 3]),
        (lit(None), [None, None, None]),
        (lit([1, 2]), [[1, 2]] * 3),
        (lit({"x": 1}), [{"x": 1}] * 3),
        (lit(1) + lit(2), [3, 3, 3]),
        (lit(np.int8(1)), [1, 1, 1]),
        (col("a") + pa.scalar(1), [2, 3, None]),
    ],
)
def test_null_is_what_is_made_of_null_unless_the_answer_is_known(expr: Expr, expected: list[Any]) -> None:
    assert values(expr) == expected


def test_a_literal_tensor_becomes_a_column_of_tensors() -> None:
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    column = project(BLOCK, [lit(tensor).alias("t")]).column("t")
    assert column.type == pa.fixed_shape_tensor(pa.float32(), (2, 3))
    assert np.array_equal(column.chunk(0).to_numpy_ndarray(), np.stack([tensor] * 3))


def test_a_literal_object_that_arrow_does_not_know_becomes_a_column_of_objects() -> None:
    from skate.data._block.rows import to_rows

    block = project(BLOCK, [lit(3 + 4j).alias("z")])
    assert [row["z"] for row in to_rows(block)] == [3 + 4j] * 3


def test_columns_pass_through_with_their_fields_and_without_a_copy() -> None:
    field = pa.field("x", pa.int64(), nullable=False, metadata={b"unit": b"m"})
    block = pa.table([pa.array([1, 2])], schema=pa.schema([field]))
    projected = project(block, [col("x"), col("x").alias("y")])
    assert projected.schema.field("x").equals(field, check_metadata=True)
    assert projected.schema.field("y").equals(field.with_name("y"), check_metadata=True)
    addresses = {projected.column(name).chunk(0).buffers()[1].address for name in ("x", "y")}
    assert addresses == {block.column("x").chunk(0).buffers()[1].address}


def test_star_stands_for_all_columns_and_a_new_column_comes_last() -> None:
    projected = project(BLOCK, [star(), (col("a") + 1).alias("new")])
    assert projected.column_names == ["a", "b", "s", "t", "d", "new"]


def test_a_column_of_the_same_name_is_replaced_where_it_stands() -> None:
    projected = project(BLOCK, [star(), (col("a") * 2).alias("a")])
    assert projected.column_names == BLOCK.column_names
    assert projected.column("a").to_pylist() == [2, 4, None]


def test_a_renamed_column_takes_the_place_of_its_source() -> None:
    projected = project(BLOCK, [star(), col("a")._rename("A")])
    assert projected.column_names == ["A", "b", "s", "t", "d"]


def test_columns_can_swap_their_names() -> None:
    block = pa.table({"a": [1], "b": [2]})
    projected = project(block, [star(), col("a")._rename("b"), col("b")._rename("a")])
    assert projected.to_pydict() == {"b": [1], "a": [2]}


def test_a_renamed_column_has_to_exist() -> None:
    with pytest.raises(ColumnNotFoundError, match="no column 'missing'"):
        project(BLOCK, [star(), col("missing")._rename("x")])


def test_unnest_makes_a_column_of_each_field() -> None:
    block = pa.table({"r": [{"x": 1, "y": "p"}, None]})
    assert project(block, [star(), unnest(col("r"))]).column_names == ["r", "x", "y"]
    assert project(block, [unnest(col("r"))]).to_pydict() == {"x": [1, None], "y": ["p", None]}
    with pytest.raises(ExpressionTypeError, match="only records have fields"):
        project(BLOCK, [unnest(col("a"))])


def test_a_projection_on_nothing_keeps_the_number_of_rows() -> None:
    assert project(BLOCK, []).num_rows == 3


def test_a_block_without_rows_gives_a_block_without_rows_of_the_same_types() -> None:
    exprs = [star(), (col("a") / 2).alias("x"), lit("y").alias("y"), uuid().alias("id")]
    assert project(BLOCK.slice(0, 0), exprs).schema == project(BLOCK, exprs).schema


def test_chunks_and_slices_do_not_change_the_values() -> None:
    chunked = pa.concat_tables([BLOCK.slice(0, 1), BLOCK.slice(1, 2)])
    expr = ((col("a") // 2) + col("a") % 2 + col("b")).is_null()
    assert values(expr, chunked) == values(expr)
    assert values(expr, BLOCK.slice(1, 2)) == values(expr)[1:]


def test_a_column_of_a_projection_needs_a_name() -> None:
    with pytest.raises(ExpressionValueError, match=r"col\('a'\) \+ 1 has no name.*alias"):
        project(BLOCK, [col("a") + 1])


def test_a_part_that_expressions_share_is_computed_once() -> None:
    counted, calls = counting_udf()
    exprs = [(counted(col("a")) + counted(col("a"))).alias("x"), counted(col("a")).alias("y")]
    assert project(BLOCK, exprs).to_pydict() == {"x": [4, 6, None], "y": [2, 3, None]}
    assert calls == [3]


def test_parts_that_only_look_alike_are_computed_apart() -> None:
    counted, calls = counting_udf()
    project(BLOCK, [counted(col("a")).alias("x"), counted(col("a") + 1).alias("y")])
    assert calls == [3, 3]


def test_what_differs_each_time_is_not_shared() -> None:
    projected = project(BLOCK, [uuid().alias("x"), uuid().alias("y"), (uuid() + uuid()).alias("z")])
    texts = [*projected.column("x").to_pylist(), *projected.column("y").to_pylist()]
    assert len(set(texts)) == 6
    assert all(text[:36] != text[36:] for text in projected.column("z").to_pylist())


def test_a_mask_counts_null_as_no() -> None:
    assert mask(BLOCK, col("a") > 1).to_pylist() == [False, True, False]
    assert mask(BLOCK, lit(True)).to_pylist() == [True, True, True]
    assert mask(BLOCK, lit(None)).to_pylist() == [False, False, False]


def test_a_mask_has_to_be_true_or_false() -> None:
    with pytest.raises(
        ExpressionTypeError, match=r"a filter needs a boolean expression, but col\('a'\) is int64"
    ):
        mask(BLOCK, col("a"))


def test_an_expression_of_pyarrows_own_is_evaluated_too() -> None:
    expr = as_predicate((pc.field("a") > 1) | pc.field("s").is_null())
    assert mask(BLOCK, expr).to_pylist() == [False, True, False]
    assert mask(BLOCK, expr & (col("b") > 1)).to_pylist() == [False, False, False]
    with pytest.raises(ExpressionValueError, match=r"missing.*the columns are a, b, s, t, d"):
        mask(BLOCK, as_predicate(pc.field("missing") > 1))


@pytest.mark.parametrize(
    ("expr", "parts"),
    [
        (col("a") + "x", ["col('a') + 'x'", "+ does not accept", "col('a') is int64", "'x' is string"]),
        (col("s") > 1, ["> does not accept", "col('s') is string", "1 is int64"]),
        (col("t") & col("a"), ["& does not accept", "col('t') is bool", "col('a') is int64"]),
        (~col("a"), ["~ does not accept", "col('a') is int64"]),
        (col("s") % 2, ["% does not accept", "col('s') is string"]),
        (col("s").abs(), ["abs does not accept", "col('s') is string"]),
        (col("a").str.upper(), ["str.upper does not accept", "col('a') is int64"]),
        (col("a").is_in(["x"]), ["string never equals int64", "col('a') is int64"]),
        (col("a").is_in(col("b")), ["list of constants"]),
        (star() + 1, ["stands for many columns"]),
    ],
)
def test_a_type_that_does_not_fit_is_named_with_column_and_operator(expr: Expr, parts: list[str]) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        values(expr)
    assert isinstance(caught.value, TypeError)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        (col("a") / 0, "divide by zero"),
        (col("a") // 0, "divide by zero"),
        (col("a") % 0, "divide by zero"),
        (col("s").cast(DataType.int64()), "parse string"),
        (col("b").power(0.5).cast(DataType.int8()), "truncated"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_the_expression(expr: Expr, problem: str) -> None:
    with pytest.raises(ExpressionValueError, match=problem) as caught:
        values(expr)
    assert isinstance(caught.value, ValueError)
    assert "col(" in str(caught.value)


def test_a_missing_column_is_named_with_those_there_are() -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        values(col("missing") + 1)
    assert str(caught.value) == "there is no column 'missing'; the columns are 'a', 'b', 's', 't', 'd'"
    assert caught.value.column == "missing"
    assert isinstance(caught.value, KeyError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.column) == (str(caught.value), "missing")


def test_one_of_several_columns_of_a_name_cannot_be_meant() -> None:
    block = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ColumnNotFoundError, match="several columns 'a'"):
        values(col("a"), block)


def test_an_error_of_the_users_function_stays_what_it_is() -> None:
    def fails(x: Any) -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as caught:
        values(UDFExpr(fails, (col("a"),), {}, DataType.int64()))
    assert not isinstance(caught.value, ExpressionError)


def test_decimals_divide_as_pythons_do_with_positive_numbers() -> None:
    amount = pa.array([Decimal("7.50"), None], pa.decimal128(6, 2))
    block = pa.table({"m": amount})
    exprs = [(col("m") // Decimal("2.00")).alias("q"), (col("m") % Decimal("2.00")).alias("r")]
    assert project(block, exprs).to_pylist() == [{"q": 3, "r": Decimal("1.50")}, {"q": None, "r": None}]


def test_a_zero_to_divide_by_does_not_matter_under_a_null() -> None:
    block = pa.table({"a": [None, 6], "b": [0, 4]})
    assert values(col("a") // col("b"), block) == [None, 1]
    assert values(col("a") % col("b"), block) == [None, 2]
    assert values(lit(None).cast(DataType.int64()) // lit(0), block) == [None, None]


def test_a_float_divided_by_zero_is_infinite_or_not_a_number() -> None:
    block = pa.table({"x": [1.0, -1.0, 0.0]})
    assert values(col("x") / 0.0, block)[:2] == [math.inf, -math.inf]
    assert values(col("x") // 0.0, block)[:2] == [math.inf, -math.inf]
    assert all(math.isnan(value) for value in values(col("x") % 0.0, block))


def test_a_long_list_to_look_up_in_is_hashed_once() -> None:
    hashed: list[int] = []

    class Key(int):
        def __hash__(self) -> int:
            hashed.append(self)
            return super().__hash__()

    expr = col("a").is_in([Key(1), Key(2)])
    for _ in range(3):
        mask(BLOCK, expr)
    assert len(hashed) <= 2 * 2  # once to see that it can be, once for the key


@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_of_every_width_is_text(text_type: pa.DataType) -> None:
    block = pa.table({"v": pa.array(["a", None], text_type), "s": ["x", "y"]})
    assert values(col("v") + "!", block) == ["a!", None]
    assert values(col("s") + col("v"), block) == ["xa", None]
    assert values(col("v") == "a", block) == [True, None]
    assert values(col("v").str.upper(), block) == ["A", None]
    assert values(col("v").is_in(["a"]), block) == [True, False]
    assert project(block, [star()]).schema == block.schema


def test_text_and_null_join_to_null() -> None:
    assert values(col("s") + None) == [None, None, None]
    assert values(lit(None) + col("d")) == [None, None, None]


def test_tensors_of_different_shapes_can_be_passed_on_and_tested_for_null() -> None:
    from skate.data._block.tensors import from_variable_shapes

    column = from_variable_shapes([np.zeros((1, 2)), None, np.ones((2, 1))])
    assert isinstance(column.type, VariableShapedTensorType)
    block = pa.table({"t": column})
    assert values(col("t").is_null(), block) == [False, True, False]
    assert project(block, [star()]).column("t").type == column.type
