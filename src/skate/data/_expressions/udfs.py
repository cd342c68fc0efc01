"""User-defined functions in expressions: declaration and calls."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skate.data._arguments import ArgumentTypeError, message
from skate.data._expressions.calls import CallableClassSpec, UDFExpr
from skate.data._expressions.errors import ExpressionTypeError, ExpressionValueError
from skate.data._expressions.nodes import as_expr
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skate.data._expressions.context import EvaluationContext


class UntypedFunctionError(Exception):
    """Report that a type depends on a function without a declared return type."""


def udf(return_dtype: DataType | pa.DataType) -> Callable[[Any], Callable[..., Any]]:
    """Make a function over whole columns usable in expressions.

    The function receives a `pyarrow.ChunkedArray` for each argument that is an expression, and the value itself for
    any other; it returns an Arrow array, a NumPy array or a pandas Series with one value per row. A class is
    instantiated once per worker; calling the decorated class sets the constructor arguments.

    Args:
        return_dtype: Type of the result, which is cast to it.

    >>> import pyarrow.compute as pc
    >>> from skate.data.datatype import DataType
    >>> from skate.data.expressions import col, udf
    >>> @udf(return_dtype=DataType.int64())
    ... def doubled(x):
    ...     return pc.multiply(x, 2)
    >>> doubled(col("a"))
    UDF(doubled)
        └── arg[0]: COL('a')
    """
    if not isinstance(return_dtype, (DataType, pa.DataType)):
        raise TypeError(
            f"udf() takes the type that the function returns, such as DataType.int64(); got {return_dtype!r}."
            " Write @udf(return_dtype=DataType.int64()) above the function"
        )
    data_type = return_dtype if isinstance(return_dtype, DataType) else DataType(return_dtype)

    def declare(function: Any) -> Callable[..., Any]:
        if not callable(function):
            raise ArgumentTypeError(message("function", "a function or a class", function))
        if isinstance(function, type):
            return _declared_class(function, data_type)

        @functools.wraps(function)
        def call_later(*args: Any, **kwargs: Any) -> UDFExpr:
            return UDFExpr(
                function,
                tuple(as_expr(arg) for arg in args),
                {name: as_expr(arg) for name, arg in kwargs.items()},
                data_type,
            )

        return call_later

    return declare


def pyarrow_udf(return_dtype: DataType | pa.DataType) -> Callable[[Any], Callable[..., Any]]:
    """Make a function over Arrow arrays usable in expressions; equals `udf`, because columns are Arrow arrays."""
    return udf(return_dtype)


def _declared_class(cls: type, data_type: DataType) -> Callable[..., Any]:
    class Declared:
        """Hold the constructor arguments until a worker creates the instance."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._spec = CallableClassSpec(cls, args, kwargs)

        def __call__(self, *args: Any, **kwargs: Any) -> UDFExpr:
            return UDFExpr(
                self,
                tuple(as_expr(arg) for arg in args),
                {name: as_expr(arg) for name, arg in kwargs.items()},
                data_type,
                self._spec,
            )

    functools.update_wrapper(Declared, cls, updated=())
    return Declared


def call(
    expr: UDFExpr, arguments: Sequence[Any], rows: int, context: EvaluationContext
) -> pa.Array | pa.ChunkedArray:
    """Call the function and return its result as a column of the declared type.

    Raises:
        ExpressionTypeError: The result is not a column, or cannot be cast to the declared type.
        ExpressionValueError: The result does not have one value per row.
    """
    function, spec = expr.fn, expr.callable_class_spec
    if spec is not None:
        function = context.instances.get(spec.key(), spec.make)
    args, kwargs = expr.split(arguments)
    result = _resolve(function(*args, **kwargs))
    column = _as_column(expr, result)
    if len(column) != rows:
        raise ExpressionValueError(
            f"UDF {expr.label!r} returned {len(column)} values for {rows} rows: it must return one per row"
        )
    declared = _declared_type(expr)
    if declared is None or column.type == declared:
        return column
    try:
        return column.cast(declared)
    except pa.ArrowException as error:
        raise ExpressionTypeError(
            f"UDF {expr.label!r} declares the type {declared}, but returned {column.type}: {error}"
        ) from error


def empty_result(expr: UDFExpr) -> pa.Array:
    """Return an empty array of the declared type.

    Raises:
        UntypedFunctionError: The function declares a Python class, which is ambiguous.
    """
    declared = _declared_type(expr)
    if declared is None:
        raise UntypedFunctionError(expr.label)
    return pa.array([], declared)


def _declared_type(expr: UDFExpr) -> pa.DataType | None:
    return None if expr.data_type.is_python_type() else expr.data_type.to_arrow_dtype()


def _as_column(expr: UDFExpr, result: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(result, (pa.Array, pa.ChunkedArray)):
        return result
    if isinstance(result, np.ndarray) or _is_series(result):
        from skate.data._block import batches

        return batches.to_block({"result": result}).column(0)
    raise ExpressionTypeError(
        f"UDF {expr.label!r} returned invalid type {type(result).__name__}. Expected type: pyarrow.Array,"
        " pyarrow.ChunkedArray, numpy.ndarray or pandas.Series, with one value per row"
    )


def _is_series(result: Any) -> bool:
    # Compare names, so that pandas and polars are not imported.
    kind = type(result)
    return kind.__name__ == "Series" and kind.__module__.partition(".")[0] in ("pandas", "polars")


def _resolve(result: Any) -> Any:
    """Wait for the result of an async function; return the last value of a generator."""
    if inspect.isasyncgen(result) or inspect.isawaitable(result):
        import asyncio

        return asyncio.run(_await(result))
    if inspect.isgenerator(result):
        return _last(list(result))
    return result


async def _await(result: Any) -> Any:
    if inspect.isasyncgen(result):
        return _last([value async for value in result])
    return await result


def _last(values: list[Any]) -> Any:
    return values[-1] if values else None
