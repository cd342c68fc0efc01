"""Users' functions and callable classes in expressions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skate.data._expressions.context import EvaluationContext, Instances
from skate.data._expressions.evaluate import evaluate, project
from skate.data.datatype import DataType
from skate.data.expressions import (
    Expr,
    ExpressionTypeError,
    ExpressionValueError,
    UDFExpr,
    col,
    lit,
    pyarrow_udf,
    udf,
)

BLOCK = pa.table({"a": [1, 2, None], "b": [10, 20, 30]})


def values(expr: Expr, context: EvaluationContext | None = None) -> list[Any]:
    found: list[Any] = project(BLOCK, [expr.alias("value")], context).column("value").to_pylist()
    return found


def returning(value: Any, dtype: DataType | None = None) -> UDFExpr:
    def function(x: Any) -> Any:
        return value

    return UDFExpr(function, (col("a"),), {}, dtype or DataType.int64())


@udf(return_dtype=DataType.int64())
class Counter:
    made = 0

    def __init__(self, start: int = 0) -> None:
        type(self).made += 1
        self.calls = start

    def __call__(self, x: pa.ChunkedArray) -> pa.ChunkedArray:
        self.calls += 1
        return pc.add(x, self.calls)


@pytest.mark.parametrize("decorator", [udf, pyarrow_udf])
def test_a_function_gets_columns_for_expressions_and_values_for_literals(decorator: Any) -> None:
    seen: list[Any] = []

    def function(*args: Any, **kwargs: Any) -> Any:
        seen.extend([args, kwargs])
        return args[0]

    declared = decorator(DataType.int64())(function)
    assert values(declared(col("a"), 3, lit("x").alias("y"), k=col("b") + 1, m=None)) == [1, 2, None]
    (column, three, text), kwargs = seen
    assert isinstance(column, pa.ChunkedArray)
    assert (three, text, kwargs["m"]) == (3, "x", None)
    assert kwargs["k"].to_pylist() == [11, 21, 31]


@pytest.mark.parametrize(
    "result",
    [
        pa.array([1, 2, None]),
        pa.chunked_array([[1], [2, None]]),
        np.array([1.0, 2.0, np.nan]),
        pd.Series([1, 2, None]),
        pd.Series([1, 2, None], dtype="Int64"),
    ],
)
def test_a_function_may_return_an_array_of_several_kinds(result: Any) -> None:
    found = project(BLOCK, [returning(result, DataType.float64()).alias("x")]).column("x")
    assert found.type == pa.float64()
    assert found.to_pylist()[:2] == [1.0, 2.0]


def test_a_function_may_return_tensors() -> None:
    shape = DataType.tensor((2,), DataType.int64())
    found = project(BLOCK, [returning(np.arange(6).reshape(3, 2), shape).alias("x")]).column("x")
    assert found.type == shape.to_arrow_dtype()
    assert found.chunk(0).to_numpy_ndarray().tolist() == [[0, 1], [2, 3], [4, 5]]


def test_the_result_is_cast_to_the_declared_type() -> None:
    assert evaluate(returning(pa.array([1, 2, 3]), DataType.int32()), BLOCK).type == pa.int32()


def test_a_result_that_is_not_of_the_declared_type_is_an_error() -> None:
    with pytest.raises(ExpressionTypeError, match="'function' declares the type int64, but returned string"):
        values(returning(pa.array(["x", "y", "z"])))


def test_a_function_that_declares_a_python_class_may_return_anything() -> None:
    expr = returning(pa.array(["x", "y", "z"]), DataType(object))
    assert values(expr) == ["x", "y", "z"]
    assert expr.get_type(BLOCK.schema) is None
    assert (expr == "x").get_type(BLOCK.schema) is None


@pytest.mark.parametrize("result", [{"a": 1}, "text", 42, [1, 2, 3], None, pa.scalar(1)])
def test_a_result_that_is_no_column_is_an_error(result: Any) -> None:
    with pytest.raises(ExpressionTypeError, match=f"returned invalid type {type(result).__name__}"):
        values(returning(result))


def test_a_result_of_another_length_is_an_error() -> None:
    with pytest.raises(ExpressionValueError, match="'function' returned 2 values for 3 rows"):
        values(returning(pa.array([1, 2])))


@pytest.mark.parametrize("dtype", ["int64", int, None])
def test_the_declared_type_has_to_be_a_type(dtype: Any) -> None:
    with pytest.raises(TypeError, match="takes the type that the function returns"):
        udf(dtype)


def test_a_function_can_be_declared_without_parentheses_of_its_own_only_by_mistake() -> None:
    with pytest.raises(TypeError, match=r"Write @udf\(return_dtype"):

        @udf
        def function(x: Any) -> Any:
            return x


def test_planning_does_not_call_the_function() -> None:
    def fails(x: Any) -> Any:
        raise AssertionError("called")

    expr = UDFExpr(fails, (col("a"),), {}, DataType.float32())
    assert (expr * 2.0).get_type(BLOCK.schema) == pa.float64()
    assert expr.alias("x").to_field(BLOCK.schema) == pa.field("x", pa.float32())


def test_an_object_of_a_class_is_made_once_and_kept_by_its_context() -> None:
    Counter.__wrapped__.made = 0  # type: ignore[attr-defined]  # set by functools.update_wrapper
    kept = EvaluationContext(instances=Instances())
    expr = Counter(start=10)(col("b"))
    assert expr.needs_actor()
    assert (expr + 1).needs_actor()
    assert not col("a").needs_actor()
    assert values(expr, kept) == [21, 31, 41]
    assert values(Counter(start=10)(col("b")), kept) == [22, 32, 42]
    assert values(Counter()(col("b")), kept) == [11, 21, 31]
    assert Counter.__wrapped__.made == 2  # type: ignore[attr-defined]  # set by functools.update_wrapper


def test_functions_and_classes_survive_the_way_to_a_worker() -> None:
    expr = Counter(5)(col("b")) + returning(pa.array([1, 1, 1]))
    copy = cloudpickle.loads(cloudpickle.dumps(expr))
    assert values(copy) == [17, 27, 37]


def test_a_shared_part_is_still_shared_after_the_way_to_a_worker() -> None:
    exprs = [Counter()(col("b")).alias("x"), (Counter()(col("b")) + 0).alias("y")]
    copies = cloudpickle.loads(cloudpickle.dumps(exprs))
    assert project(BLOCK, copies).to_pydict() == {"x": [11, 21, 31], "y": [11, 21, 31]}


def test_an_async_function_is_waited_for() -> None:
    @udf(DataType.int64())
    class Added:
        async def __call__(self, x: Any) -> Any:
            return pc.add(x, 1)

    assert values(Added()(col("b"))) == [11, 21, 31]


def test_of_what_a_generator_yields_the_last_counts() -> None:
    @udf(DataType.int64())
    def plain(x: Any) -> Iterator[Any]:
        yield x
        yield pc.add(x, 1)

    async def later(x: Any) -> AsyncIterator[Any]:
        yield x
        yield pc.add(x, 2)

    assert values(plain(col("b"))) == [11, 21, 31]
    assert values(udf(DataType.int64())(later)(col("b"))) == [12, 22, 32]
