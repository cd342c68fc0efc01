"""Evaluation of expressions on a block."""

from __future__ import annotations

from collections import Counter
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions import sources, udfs
from skate.data._expressions.arithmetic import FUNCTIONS, apply_binary, decoded, is_view
from skate.data._expressions.arrow import ArrowExpr
from skate.data._expressions.calls import KernelExpr, PyArrowComputeUDFExpr, UDFExpr
from skate.data._expressions.context import EvaluationContext
from skate.data._expressions.errors import (
    ExpressionTypeError,
    ExpressionValueError,
    missing_column,
)
from skate.data._expressions.membership import is_in
from skate.data._expressions.nodes import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    LiteralExpr,
    StarExpr,
    UnaryExpr,
    UnnestExpr,
    unaliased,
)
from skate.data._expressions.operations import Operation
from skate.data._expressions.printing import inline
from skate.data._expressions.projection import expand_star

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from skate.data._expressions.expr import Expr
from typing import TYPE_CHECKING

from skate.data._expressions.errors import ExpressionError
from skate.data._expressions.udfs import UntypedFunctionError

if TYPE_CHECKING:
    import pyarrow as pa

    from skate.data._expressions.expr import Expr

Value: TypeAlias = "pa.Array | pa.ChunkedArray | pa.Scalar"


class Evaluation:
    """Evaluate expressions on one block, and what they have in common once.

    Args:
        block: The block.
        context: Where its rows stand.
        types_only: Whether only the types of the results are wanted: the block is empty, and no function of the
            user's is called.
    """

    def __init__(
        self, block: pa.Table, context: EvaluationContext | None = None, *, types_only: bool = False
    ) -> None:
        self.block = block
        self.context = context or EvaluationContext()
        self.types_only = types_only
        self._shared: set[Hashable] = set()
        self._values: dict[Hashable, Value] = {}
        self._streams = 0

    def share(self, exprs: Iterable[Expr]) -> None:
        """Find what these expressions have in common, to compute it once."""
        counts: Counter[Hashable] = Counter()
        for expr in exprs:
            _count(expr, counts)
        self._shared = {key for key, count in counts.items() if count > 1}

    def value(self, expr: Expr) -> Value:
        """Return the value of an expression."""
        if not self._shared or (key := expr.fingerprint()) not in self._shared:
            return _evaluated(expr, self)
        if key not in self._values:
            self._values[key] = _evaluated(expr, self)
        return self._values[key]

    def column(self, expr: Expr) -> Value:
        """Return the value of an expression as one value for each row."""
        return broadcast(self.value(expr), self.block.num_rows)

    def stream(self) -> int:
        """Return the number of a stream of random values that no other node of this evaluation draws from."""
        self._streams += 1
        return self._streams


def evaluate(expr: Expr, block: pa.Table, context: EvaluationContext | None = None) -> Value:
    """Return the value of an expression for every row of a block; a scalar stands for the same in each."""
    evaluation = Evaluation(block, context)
    evaluation.share([expr])
    return evaluation.value(expr)


def project(block: pa.Table, exprs: Sequence[Expr], context: EvaluationContext | None = None) -> pa.Table:
    """Return a block with a column for each expression.

    `star()` stands for the columns there are, and a renamed column takes the place of its source. Of two columns
    with one name the later one wins, in the place of the first.

    Raises:
        ExpressionError: One of them cannot be evaluated, or has no name.
    """
    evaluation = Evaluation(block, context)
    exprs = expand_star(exprs, block.schema)
    evaluation.share(expr for expr in exprs if not isinstance(expr, ColumnExpr))
    columns: dict[str, tuple[pa.Field, Value]] = {}
    for expr in exprs:
        for field, value in _fields(expr, evaluation):
            columns[field.name] = (field, value)
    if not columns:
        return block.select([])  # unlike a table of no columns made anew, this knows its number of rows
    fields, values = zip(*columns.values(), strict=True)
    return pa.table(list(values), schema=pa.schema(fields, metadata=block.schema.metadata))


def mask(block: pa.Table, expr: Expr, context: EvaluationContext | None = None) -> Value:
    """Return for every row of a block whether a predicate holds; null counts as no.

    Raises:
        ExpressionTypeError: The expression does not compute truth values.
    """
    evaluation = Evaluation(block, context)
    evaluation.share([expr])
    found = evaluation.column(expr)
    if pa.types.is_null(found.type):
        found = found.cast(pa.bool_())
    if not pa.types.is_boolean(found.type):
        raise ExpressionTypeError(
            f"a filter needs true or false for each row, and {inline(expr)} is {found.type}"
        )
    return pc.fill_null(found, False) if found.null_count else found


def broadcast(value: Value, rows: int) -> Value:
    """Return a value for each row; an array already is one."""
    if not isinstance(value, pa.Scalar):
        return value
    if isinstance(value, pa.ExtensionScalar):
        storage = pa.repeat(value.value, rows) if value.is_valid else pa.nulls(rows, value.type.storage_type)
        return pa.ExtensionArray.from_storage(value.type, storage)
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)


def _count(expr: Expr, counts: Counter[Hashable]) -> None:
    inner = unaliased(expr)
    # Columns and literals cost nothing, and what is different each time is not the same.
    if inner.children() and inner.is_deterministic():
        key = inner.fingerprint()
        counts[key] += 1
        if counts[key] > 1:
            return  # what it is made of is computed with it, once
    for child in inner.children():
        _count(child, counts)


@singledispatch
def _evaluated(expr: Expr, evaluation: Evaluation) -> Value:
    raise NotImplementedError(f"{type(expr).__name__} cannot be evaluated")


@_evaluated.register
def _(expr: ColumnExpr, evaluation: Evaluation) -> Value:
    column = evaluation.block.column(_index(expr, evaluation.block.schema))
    if is_view(column.type):
        column = decoded(column)
    return column.chunk(0) if column.num_chunks == 1 else column


@_evaluated.register
def _(expr: LiteralExpr, evaluation: Evaluation) -> Value:
    value = expr.value
    if isinstance(value, pa.Scalar):
        return value
    if not isinstance(value, np.ndarray):
        try:
            return pa.scalar(value)
        except (pa.ArrowException, OverflowError):
            pass  # not a type of Arrow's: the edge that turns users' rows into blocks has one for it
    from skate.data._block import rows

    return rows.to_block([{"literal": value}]).column(0)[0]


@_evaluated.register
def _(expr: AliasExpr, evaluation: Evaluation) -> Value:
    return evaluation.value(expr.expr)


@_evaluated.register
def _(expr: BinaryExpr, evaluation: Evaluation) -> Value:
    left = evaluation.value(expr.left)
    if expr.op in (Operation.IN, Operation.NOT_IN):
        return _membership(expr, left)
    right = evaluation.value(expr.right)
    with _Telling(expr, [left, right]):
        return apply_binary(expr.op, left, right)


@_evaluated.register
def _(expr: UnaryExpr, evaluation: Evaluation) -> Value:
    operand = evaluation.value(expr.operand)
    with _Telling(expr, [operand]):
        return FUNCTIONS[expr.op](operand)


@_evaluated.register
def _(expr: PyArrowComputeUDFExpr, evaluation: Evaluation) -> Value:
    values = [decoded(evaluation.value(child)) for child in expr.children()]
    with _Telling(expr, values):
        return expr.apply(values)


@_evaluated.register
def _(expr: KernelExpr, evaluation: Evaluation) -> Value:
    values = [decoded(evaluation.column(child)) for child in expr.children()]
    with _Telling(expr, values):
        return expr.fn(*values, *expr.options)


@_evaluated.register
def _(expr: UDFExpr, evaluation: Evaluation) -> Value:
    if evaluation.types_only:
        return udfs.empty_result(expr)
    arguments = [
        inner.value
        if isinstance(inner := unaliased(child), LiteralExpr)
        else _chunked(evaluation.column(child))
        for child in expr.children()
    ]
    return udfs.call(expr, arguments, evaluation.block.num_rows, evaluation.context)


@_evaluated.register
def _(expr: ArrowExpr, evaluation: Evaluation) -> Value:
    return expr.on(evaluation.block)


@_evaluated.register
def _(expr: sources.MonotonicallyIncreasingIdExpr, evaluation: Evaluation) -> Value:
    return expr.values(evaluation.block.num_rows, evaluation.context)


@_evaluated.register
def _(expr: sources.RandomExpr | sources.UUIDExpr, evaluation: Evaluation) -> Value:
    return expr.values(evaluation.block.num_rows, evaluation.context, evaluation.stream())


@_evaluated.register
def _(expr: sources.DownloadExpr, evaluation: Evaluation) -> Value:
    if evaluation.types_only:
        return pa.array([], pa.binary())
    from skate.data._expressions.sources import download

    uris = decoded(evaluation.column(expr.source))
    with _Telling(expr, [uris]):
        return download(uris, expr.filesystem)


@_evaluated.register
def _(expr: StarExpr | UnnestExpr, evaluation: Evaluation) -> Value:
    raise ExpressionTypeError(
        f"{inline(expr)} stands for many columns: it can be one of the expressions of a projection, not a part of one"
    )


def _chunked(column: Value) -> pa.ChunkedArray:
    # Always the same class, and the one whose to_numpy() copies where it has to instead of refusing.
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _membership(expr: BinaryExpr, column: Value) -> Value:
    right = unaliased(expr.right)
    if not isinstance(right, LiteralExpr) or not isinstance(
        right.value, (list, tuple, set, frozenset, np.ndarray)
    ):
        raise ExpressionTypeError(
            f"{inline(expr)}: is_in and not_in look values up in a list that is known beforehand; pass a list or"
            " lit([...])"
        )
    with _Telling(expr, [column]):
        found = is_in(column, list(right.value))
        return pc.invert(found) if expr.op is Operation.NOT_IN else found


def _fields(expr: Expr, evaluation: Evaluation) -> Iterator[tuple[pa.Field, Value]]:
    """Yield the columns that one expression of a projection stands for."""
    if isinstance(expr, UnnestExpr):
        records = evaluation.column(expr.expr)
        if not pa.types.is_struct(records.type):
            raise ExpressionTypeError(
                f"{inline(expr)}: only records have fields, and {inline(expr.expr)} is {records.type}"
            )
        yield from ((field, pc.struct_field(records, index)) for index, field in enumerate(records.type))
        return
    if expr.name is None:
        raise ExpressionValueError(f"{inline(expr)} has no name: give the column one with .alias('name')")
    inner = unaliased(expr)
    if isinstance(inner, ColumnExpr):  # passed on as it is, with its metadata
        index = _index(inner, evaluation.block.schema)
        field = evaluation.block.schema.field(index)
        yield field if inner is expr else field.with_name(expr.name), evaluation.block.column(index)
    else:
        value = evaluation.column(inner)
        yield pa.field(expr.name, value.type), value


def _index(expr: ColumnExpr, schema: pa.Schema) -> int:
    index: int = schema.get_field_index(expr.name)
    if index < 0:
        raise missing_column(expr.name, schema.names)
    return index


class _Telling:
    """Turn an error of Arrow's into one that names the expression and the types of its operands."""

    def __init__(self, expr: Expr, values: list[Any]) -> None:
        self._expr = expr
        self._values = values

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise the error anew, if there is one."""
        if not isinstance(error, pa.ArrowException):
            return
        operands = ", ".join(
            f"{inline(child)} is {value.type}"
            for child, value in zip(self._expr.children(), self._values, strict=False)
        )
        if isinstance(error, pa.ArrowNotImplementedError):
            # Arrow names its function and the types here; the user knows the operator and the columns.
            raise ExpressionTypeError(
                f"{inline(self._expr)}: {_function(self._expr)} does not take these types: {operands}. Cast one of"
                " them, as in .cast(DataType.int64())"
            ) from error
        if isinstance(error, pa.ArrowTypeError):
            raise ExpressionTypeError(f"{inline(self._expr)}: {error}; {operands}") from error
        raise ExpressionValueError(f"{inline(self._expr)}: {error}; {operands}") from error


def _function(expr: Expr) -> str:
    if isinstance(expr, (BinaryExpr, UnaryExpr)):
        return expr.op.symbol
    return expr.label if isinstance(expr, UDFExpr) else inline(expr)


def output_type(expr: Expr, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of the column an expression computes; None if a column is missing or a type unknown.

    It is the very evaluation that runs on blocks, so the two cannot disagree; functions of the user's are not called.
    """
    try:
        return Evaluation(schema.empty_table(), types_only=True).value(expr).type
    except (ExpressionError, UntypedFunctionError):
        return None
