"""Evaluation of expressions on a block."""

from __future__ import annotations

from collections import Counter
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions import sources, udfs
from skate.data._expressions.arithmetic import FUNCTIONS, apply_binary, decode_dictionary, is_in, is_view
from skate.data._expressions.arrow import ArrowExpr
from skate.data._expressions.calls import KernelExpr, PyArrowComputeUDFExpr, UDFExpr
from skate.data._expressions.context import EvaluationContext
from skate.data._expressions.errors import (
    ExpressionTypeError,
    ExpressionValueError,
    missing_column,
)
from skate.data._expressions.nodes import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    LiteralExpr,
    StarExpr,
    UnaryExpr,
    UnnestExpr,
    strip_alias,
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
    """Evaluate expressions on one block; common subexpressions are computed once.

    Args:
        block: The block.
        context: Position of the block in its dataset.
        types_only: Compute only the types of the results: the block is empty, and user-defined functions are not
            called.
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
        """Count the common subexpressions of these expressions, to compute each once."""
        counts: Counter[Hashable] = Counter()
        for expr in exprs:
            _count(expr, counts)
        self._shared = {key for key, count in counts.items() if count > 1}

    def value(self, expr: Expr) -> Value:
        """Return the value of an expression."""
        if not self._shared or (key := expr.fingerprint()) not in self._shared:
            return _evaluate(expr, self)
        if key not in self._values:
            self._values[key] = _evaluate(expr, self)
        return self._values[key]

    def column(self, expr: Expr) -> Value:
        """Return the value of an expression with one element per row."""
        return broadcast(self.value(expr), self.block.num_rows)

    def stream(self) -> int:
        """Return the number of a random stream that no other node of this evaluation uses."""
        self._streams += 1
        return self._streams


def evaluate(expr: Expr, block: pa.Table, context: EvaluationContext | None = None) -> Value:
    """Return the value of an expression for the rows of a block; a scalar applies to all rows."""
    evaluation = Evaluation(block, context)
    evaluation.share([expr])
    return evaluation.value(expr)


def project(block: pa.Table, exprs: Sequence[Expr], context: EvaluationContext | None = None) -> pa.Table:
    """Return a block with a column per expression.

    `star()` expands to all columns, and a renamed column takes the position of its source. Of two columns with the
    same name, the later value wins, at the position of the first.

    Raises:
        ExpressionError: An expression cannot be evaluated, or has no name.
    """
    evaluation = Evaluation(block, context)
    exprs = expand_star(exprs, block.schema)
    evaluation.share(expr for expr in exprs if not isinstance(expr, ColumnExpr))
    columns: dict[str, tuple[pa.Field, Value]] = {}
    for expr in exprs:
        for field, value in _fields(expr, evaluation):
            columns[field.name] = (field, value)
    if not columns:
        return block.select([])  # unlike a new table without columns, this keeps the number of rows
    fields, values = zip(*columns.values(), strict=True)
    return pa.table(list(values), schema=pa.schema(fields, metadata=block.schema.metadata))


def mask(block: pa.Table, expr: Expr, context: EvaluationContext | None = None) -> Value:
    """Return which rows of a block match a predicate; null counts as false.

    Raises:
        ExpressionTypeError: The expression is not boolean.
    """
    evaluation = Evaluation(block, context)
    evaluation.share([expr])
    found = evaluation.column(expr)
    if pa.types.is_null(found.type):
        found = found.cast(pa.bool_())
    if not pa.types.is_boolean(found.type):
        raise ExpressionTypeError(f"a filter needs a boolean expression, but {inline(expr)} is {found.type}")
    return pc.fill_null(found, False) if found.null_count else found


def broadcast(value: Value, rows: int) -> Value:
    """Return a value with one element per row; arrays are returned unchanged."""
    if not isinstance(value, pa.Scalar):
        return value
    if isinstance(value, pa.ExtensionScalar):
        storage = pa.repeat(value.value, rows) if value.is_valid else pa.nulls(rows, value.type.storage_type)
        return pa.ExtensionArray.from_storage(value.type, storage)
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)


def _count(expr: Expr, counts: Counter[Hashable]) -> None:
    inner = strip_alias(expr)
    # Columns and literals cost nothing, and nondeterministic nodes must not be shared.
    if inner.children() and inner.is_deterministic():
        key = inner.fingerprint()
        counts[key] += 1
        if counts[key] > 1:
            return  # its children are computed once together with it
    for child in inner.children():
        _count(child, counts)


@singledispatch
def _evaluate(expr: Expr, evaluation: Evaluation) -> Value:
    raise NotImplementedError(f"{type(expr).__name__} cannot be evaluated")


@_evaluate.register
def _(expr: ColumnExpr, evaluation: Evaluation) -> Value:
    column = evaluation.block.column(_index(expr, evaluation.block.schema))
    if is_view(column.type):
        column = decode_dictionary(column)
    return column.chunk(0) if column.num_chunks == 1 else column


@_evaluate.register
def _(expr: LiteralExpr, evaluation: Evaluation) -> Value:
    value = expr.value
    if isinstance(value, pa.Scalar):
        return value
    if not isinstance(value, np.ndarray):
        try:
            return pa.scalar(value)
        except (pa.ArrowException, OverflowError):
            pass  # not an Arrow type: the conversion of user rows handles it
    from skate.data._block import rows

    return rows.to_block([{"literal": value}]).column(0)[0]


@_evaluate.register
def _(expr: AliasExpr, evaluation: Evaluation) -> Value:
    return evaluation.value(expr.expr)


@_evaluate.register
def _(expr: BinaryExpr, evaluation: Evaluation) -> Value:
    left = evaluation.value(expr.left)
    if expr.op in (Operation.IN, Operation.NOT_IN):
        return _membership(expr, left)
    right = evaluation.value(expr.right)
    with _ErrorContext(expr, [left, right]):
        return apply_binary(expr.op, left, right)


@_evaluate.register
def _(expr: UnaryExpr, evaluation: Evaluation) -> Value:
    operand = evaluation.value(expr.operand)
    with _ErrorContext(expr, [operand]):
        return FUNCTIONS[expr.op](operand)


@_evaluate.register
def _(expr: PyArrowComputeUDFExpr, evaluation: Evaluation) -> Value:
    values = [decode_dictionary(evaluation.value(child)) for child in expr.children()]
    with _ErrorContext(expr, values):
        return expr.apply(values)


@_evaluate.register
def _(expr: KernelExpr, evaluation: Evaluation) -> Value:
    values = [decode_dictionary(evaluation.column(child)) for child in expr.children()]
    with _ErrorContext(expr, values):
        return expr.fn(*values, *expr.options)


@_evaluate.register
def _(expr: UDFExpr, evaluation: Evaluation) -> Value:
    if evaluation.types_only:
        return udfs.empty_result(expr)
    arguments = [
        inner.value
        if isinstance(inner := strip_alias(child), LiteralExpr)
        else _to_chunked(evaluation.column(child))
        for child in expr.children()
    ]
    return udfs.call(expr, arguments, evaluation.block.num_rows, evaluation.context)


@_evaluate.register
def _(expr: ArrowExpr, evaluation: Evaluation) -> Value:
    return expr.on(evaluation.block)


@_evaluate.register
def _(expr: sources.MonotonicallyIncreasingIdExpr, evaluation: Evaluation) -> Value:
    return expr.values(evaluation.block.num_rows, evaluation.context)


@_evaluate.register
def _(expr: sources.RandomExpr | sources.UUIDExpr, evaluation: Evaluation) -> Value:
    return expr.values(evaluation.block.num_rows, evaluation.context, evaluation.stream())


@_evaluate.register
def _(expr: sources.DownloadExpr, evaluation: Evaluation) -> Value:
    if evaluation.types_only:
        return pa.array([], pa.binary())
    from skate.data._expressions.sources import download

    uris = decode_dictionary(evaluation.column(expr.source))
    with _ErrorContext(expr, [uris]):
        return download(uris, expr.filesystem)


@_evaluate.register
def _(expr: StarExpr | UnnestExpr, evaluation: Evaluation) -> Value:
    raise ExpressionTypeError(
        f"{inline(expr)} stands for many columns: use it as an expression of a projection, not as a part of one"
    )


def _to_chunked(column: Value) -> pa.ChunkedArray:
    # A consistent class, and one whose to_numpy() copies if necessary instead of raising.
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _membership(expr: BinaryExpr, column: Value) -> Value:
    right = strip_alias(expr.right)
    if not isinstance(right, LiteralExpr) or not isinstance(
        right.value, (list, tuple, set, frozenset, np.ndarray)
    ):
        raise ExpressionTypeError(
            f"{inline(expr)}: is_in and not_in need a list of constants; pass a list or lit([...])"
        )
    with _ErrorContext(expr, [column]):
        found = is_in(column, list(right.value))
        return pc.invert(found) if expr.op is Operation.NOT_IN else found


def _fields(expr: Expr, evaluation: Evaluation) -> Iterator[tuple[pa.Field, Value]]:
    """Yield the columns that one expression of a projection expands to."""
    if isinstance(expr, UnnestExpr):
        records = evaluation.column(expr.expr)
        if not pa.types.is_struct(records.type):
            raise ExpressionTypeError(
                f"{inline(expr)}: only records have fields, and {inline(expr.expr)} is {records.type}"
            )
        yield from ((field, pc.struct_field(records, index)) for index, field in enumerate(records.type))
        return
    if expr.name is None:
        raise ExpressionValueError(f"{inline(expr)} has no name: name the column with .alias('name')")
    inner = strip_alias(expr)
    if isinstance(inner, ColumnExpr):  # passed through unchanged, with its metadata
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


class _ErrorContext:
    """Convert an Arrow error to one that names the expression and the types of its operands."""

    def __init__(self, expr: Expr, values: list[Any]) -> None:
        self._expr = expr
        self._values = values

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise the converted error, if there is one."""
        if not isinstance(error, pa.ArrowException):
            return
        operands = ", ".join(
            f"{inline(child)} is {value.type}"
            for child, value in zip(self._expr.children(), self._values, strict=False)
        )
        if isinstance(error, pa.ArrowNotImplementedError):
            # Arrow names its own function and the types; the user knows the operator and the columns.
            raise ExpressionTypeError(
                f"{inline(self._expr)}: {_function(self._expr)} does not accept these types: {operands}. Cast one of"
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
    """Return the type of the column that an expression computes; None if a column is missing or a type is unknown.

    This runs the same evaluation as for blocks, so the two cannot disagree; user-defined functions are not called.
    """
    try:
        return Evaluation(schema.empty_table(), types_only=True).value(expr).type
    except (ExpressionError, UntypedFunctionError):
        return None
