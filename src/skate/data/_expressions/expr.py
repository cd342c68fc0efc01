"""The base class of expressions: operators and methods that build trees, and queries for a planner.

Operations on trees live in their own modules (`evaluate`, `to_pyarrow`, `printing`, …), which know all kinds of
nodes. The methods here delegate to them and import them when called, because every node derives from this class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions.fingerprints import Fingerprint
from skate.data._expressions.operations import Operation
from skate.data.datatype import DataType

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from skate.data._expressions.calls import PyArrowComputeUDFExpr
    from skate.data._expressions.context import EvaluationContext
    from skate.data._expressions.datetimes import DatetimeNamespace
    from skate.data._expressions.evaluate import Value
    from skate.data._expressions.nested import ArrayNamespace, ListNamespace, MapNamespace, StructNamespace
    from skate.data._expressions.nodes import AliasExpr, BinaryExpr, UnaryExpr
    from skate.data._expressions.strings import StringNamespace

UNKNOWN = DataType(object)


class Expr:
    """A recipe that computes a column from the columns of a dataset.

    Operators and methods build larger expressions; nothing is computed until a dataset is. A null operand makes the
    result null, except for `&` and `|` where the other operand decides alone, and for `is_null`, `is_not_null`,
    `is_in` and `not_in`, which are never null.

    `//` and `%` round towards minus infinity, as in Python. `/` is Arrow's: integers divide to an integer, rounded
    towards zero; cast one side to a float for a fraction.

    >>> from skate.data.expressions import col
    >>> (col("price") * col("quantity")).alias("total")
    ALIAS('total')
        └── MUL
            ├── left: COL('price')
            └── right: COL('quantity')
    """

    data_type: DataType = UNKNOWN

    # Structure.

    @property
    def name(self) -> builtins.str | None:
        """The name of the column that it computes; None if it has none."""
        return None

    def children(self) -> tuple[Expr, ...]:
        """Return the operands."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the same node with other children, in the order of `children()`."""
        return self

    def own_key(self) -> Hashable:
        """Return a key that distinguishes this node from others of its class, without its children."""
        raise NotImplementedError  # an abstract base class would slow down every isinstance check

    def walk(self) -> Iterator[Expr]:
        """Yield the node and its descendants, parents first."""
        yield self
        for child in self.children():
            yield from child.walk()

    def fingerprint(self) -> Fingerprint:
        """Return a key that is equal for trees of the same structure."""
        cached: Fingerprint | None = self.__dict__.get("_fingerprint")
        if cached is None:
            children = (child.fingerprint() for child in self.children())
            cached = Fingerprint((type(self).__name__, self.own_key(), *children))
            self.__dict__["_fingerprint"] = cached  # nodes are immutable
        return cached

    def __getstate__(self) -> dict[builtins.str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_fingerprint"}

    def structurally_equals(self, other: Any) -> bool:
        """Return whether the other tree has the same structure; `==` builds an expression instead."""
        return isinstance(other, Expr) and self.fingerprint() == other.fingerprint()

    # Queries of the planner.

    def columns(self) -> set[builtins.str]:
        """Return the names of the columns that it reads; see also `reads_all_columns`."""
        return set().union(*(child.columns() for child in self.children()))

    def reads_all_columns(self) -> bool:
        """Return whether it reads all columns: `star()`, or a pyarrow expression."""
        return any(child.reads_all_columns() for child in self.children())

    def is_deterministic(self) -> bool:
        """Return whether another evaluation on the same rows gives the same values."""
        return all(child.is_deterministic() for child in self.children())

    def is_idempotent(self) -> bool:
        """Alias of `is_deterministic`, under Ray's name."""
        return self.is_deterministic()

    def needs_actor(self) -> bool:
        """Return whether it uses a callable class, whose instance must live as long as its worker."""
        return any(child.needs_actor() for child in self.children())

    def substitute(self, replacements: Mapping[builtins.str, Expr]) -> Expr:
        """Return the expression with columns replaced by other expressions; it keeps its name.

        >>> from skate.data.expressions import col
        >>> (col("b") > 3).substitute({"b": col("a") + 1})
        GT
            ├── left: ADD
            │   ├── left: COL('a')
            │   └── right: LIT(1)
            └── right: LIT(3)
        """
        from skate.data._expressions.nodes import substitute_columns

        return substitute_columns(self, replacements)

    def get_type(self, input_schema: pa.Schema) -> pa.DataType | None:
        """Return the type of the column that it computes; None if it is unknown before evaluation."""
        from skate.data._expressions.evaluate import output_type

        return output_type(self, input_schema)

    def output_type(self, schema: pa.Schema) -> pa.DataType | None:
        """Return the type of the column that it computes; None if it is unknown before evaluation."""
        return self.get_type(schema)

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return whether the column that it computes may hold nulls."""
        return True

    def to_field(self, input_schema: pa.Schema) -> pa.Field | None:
        """Return the field of the column that it computes; None if its name or type is unknown."""
        column_type = self.get_type(input_schema)
        if self.name is None or column_type is None:
            return None
        return pa.field(self.name, column_type, nullable=self.nullable(input_schema))

    def to_pyarrow(self, schema: pa.Schema | None = None) -> pc.Expression:
        """Convert it to a pyarrow expression, which readers can evaluate while they read.

        Args:
            schema: The columns that it will read. Operators that depend on types (`+` on text, functions on
                dictionary-encoded columns) need it.

        Raises:
            NotExpressibleError: pyarrow has no equivalent.
        """
        from skate.data._expressions.to_pyarrow import to_pyarrow

        return to_pyarrow(self, schema)

    def evaluate(self, block: pa.Table, context: EvaluationContext | None = None) -> Value:
        """Return its value for the rows of a block; a scalar applies to all rows."""
        from skate.data._expressions.evaluate import evaluate

        return evaluate(self, block, context)

    def __repr__(self) -> builtins.str:
        from skate.data._expressions.printing import tree

        return tree(self)

    def __str__(self) -> builtins.str:
        return repr(self)

    def __bool__(self) -> bool:
        from skate.data._expressions.printing import inline

        raise TypeError(
            f"{inline(self)} has a value per row and no truth value: combine expressions with"
            " &, | and ~ instead of and, or, not, in and chained comparisons"
        )

    # Operators.

    def _binary(self, op: Operation, other: Any) -> BinaryExpr:
        from skate.data._expressions.nodes import BinaryExpr, as_expr

        return BinaryExpr(op, self, as_expr(other))

    def _reflected(self, op: Operation, other: Any) -> BinaryExpr:
        from skate.data._expressions.nodes import BinaryExpr, as_expr

        return BinaryExpr(op, as_expr(other), self)

    def _unary(self, op: Operation) -> UnaryExpr:
        from skate.data._expressions.nodes import UnaryExpr

        return UnaryExpr(op, self)

    __hash__ = object.__hash__  # __eq__ below is not equality

    def __add__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.ADD, other)

    def __radd__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.ADD, other)

    def __sub__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.SUB, other)

    def __rsub__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.SUB, other)

    def __mul__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.MUL, other)

    def __rmul__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.MUL, other)

    def __truediv__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.DIV, other)

    def __rtruediv__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.DIV, other)

    def __floordiv__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.FLOORDIV, other)

    def __rfloordiv__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.FLOORDIV, other)

    def __mod__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.MOD, other)

    def __rmod__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.MOD, other)

    def __gt__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.GT, other)

    def __lt__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.LT, other)

    def __ge__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.GE, other)

    def __le__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.LE, other)

    def __eq__(self, other: Any) -> BinaryExpr:  # type: ignore[override]  # it builds an expression
        return self._binary(Operation.EQ, other)

    def __ne__(self, other: Any) -> BinaryExpr:  # type: ignore[override]  # it builds an expression
        return self._binary(Operation.NE, other)

    def __and__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.AND, other)

    def __rand__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.AND, other)

    def __or__(self, other: Any) -> BinaryExpr:
        return self._binary(Operation.OR, other)

    def __ror__(self, other: Any) -> BinaryExpr:
        return self._reflected(Operation.OR, other)

    def __invert__(self) -> UnaryExpr:
        return self._unary(Operation.NOT)

    def __neg__(self) -> PyArrowComputeUDFExpr:
        return self.negate()

    def __abs__(self) -> PyArrowComputeUDFExpr:
        return self.abs()

    def __pow__(self, exponent: Any) -> PyArrowComputeUDFExpr:
        return self.power(exponent)

    def __rpow__(self, base: Any) -> PyArrowComputeUDFExpr:
        from skate.data._expressions.nodes import as_expr

        return as_expr(base).power(self)

    # Predicates and names.

    def is_null(self) -> UnaryExpr:
        """Test whether the value of each row is null; NaN is not null."""
        return self._unary(Operation.IS_NULL)

    def is_not_null(self) -> UnaryExpr:
        """Test whether the value of each row is not null."""
        return self._unary(Operation.IS_NOT_NULL)

    def is_in(self, values: Iterable[Any] | Expr) -> BinaryExpr:
        """Test whether the value of each row is one of these; null matches only if None is one of them.

        Args:
            values: The values, or a literal that holds them.
        """
        return self._membership(Operation.IN, values)

    def not_in(self, values: Iterable[Any] | Expr) -> BinaryExpr:
        """Test whether the value of each row is none of these; see `is_in`."""
        return self._membership(Operation.NOT_IN, values)

    def _membership(self, op: Operation, values: Any) -> BinaryExpr:
        iterable = isinstance(values, Expr) or hasattr(values, "__iter__")
        if not iterable or isinstance(values, (str, bytes)):
            raise TypeError(f"is_in and not_in take a list of values, got {values!r}: pass [{values!r}]")
        return self._binary(op, values if isinstance(values, Expr) else _as_list(values))

    def alias(self, name: builtins.str) -> AliasExpr:
        """Name the column that it computes."""
        from skate.data._expressions.nodes import AliasExpr

        return AliasExpr(self, name)

    def _rename(self, name: builtins.str) -> AliasExpr:
        """Rename a column: beside `star()`, the new name replaces the old one."""
        from skate.data._expressions.nodes import AliasExpr

        return AliasExpr(self, name, _is_rename=True)

    # Numeric functions.

    def _call(
        self, label: builtins.str, function: Callable[..., Any], *args: Any, **options: Any
    ) -> PyArrowComputeUDFExpr:
        from skate.data._expressions.calls import compute

        return compute(label, function, self, *args, **options)

    def ceil(self) -> PyArrowComputeUDFExpr:
        """Round up to an integer."""
        return self._call("ceil", pc.ceil)

    def floor(self) -> PyArrowComputeUDFExpr:
        """Round down to an integer."""
        return self._call("floor", pc.floor)

    def round(self, ndigits: int = 0) -> PyArrowComputeUDFExpr:
        """Round to this number of decimal places, half to even."""
        return self._call("round", pc.round, **({"ndigits": ndigits} if ndigits else {}))

    def trunc(self) -> PyArrowComputeUDFExpr:
        """Round towards zero to an integer."""
        return self._call("trunc", pc.trunc)

    def ln(self) -> PyArrowComputeUDFExpr:
        """Compute the natural logarithm; NaN for a negative number."""
        return self._call("ln", pc.ln)

    def log10(self) -> PyArrowComputeUDFExpr:
        """Compute the logarithm to base 10."""
        return self._call("log10", pc.log10)

    def log2(self) -> PyArrowComputeUDFExpr:
        """Compute the logarithm to base 2."""
        return self._call("log2", pc.log2)

    def exp(self) -> PyArrowComputeUDFExpr:
        """Raise e to the value."""
        return self._call("exp", pc.exp)

    def sin(self) -> PyArrowComputeUDFExpr:
        """Compute the sine of an angle in radians."""
        return self._call("sin", pc.sin)

    def cos(self) -> PyArrowComputeUDFExpr:
        """Compute the cosine of an angle in radians."""
        return self._call("cos", pc.cos)

    def tan(self) -> PyArrowComputeUDFExpr:
        """Compute the tangent of an angle in radians."""
        return self._call("tan", pc.tan)

    def asin(self) -> PyArrowComputeUDFExpr:
        """Compute the arc sine; NaN outside of -1 to 1."""
        return self._call("asin", pc.asin)

    def acos(self) -> PyArrowComputeUDFExpr:
        """Compute the arc cosine; NaN outside of -1 to 1."""
        return self._call("acos", pc.acos)

    def atan(self) -> PyArrowComputeUDFExpr:
        """Compute the arc tangent."""
        return self._call("atan", pc.atan)

    def negate(self) -> PyArrowComputeUDFExpr:
        """Negate the value."""
        return self._call("negate", pc.negate_checked)

    def sign(self) -> PyArrowComputeUDFExpr:
        """Return -1, 0 or 1."""
        return self._call("sign", pc.sign)

    def abs(self) -> PyArrowComputeUDFExpr:
        """Compute the absolute value."""
        return self._call("abs", pc.abs_checked)

    def power(self, exponent: Any) -> PyArrowComputeUDFExpr:
        """Raise to a power, which is a number or an expression."""
        return self._call("power", pc.power, exponent)

    def cast(self, target_type: DataType | pa.DataType, *, safe: bool = True) -> PyArrowComputeUDFExpr:
        """Cast to another type.

        Args:
            target_type: The type, such as `DataType.int64()`.
            safe: Whether a value that the type cannot represent exactly is an error; otherwise it is truncated.

        Raises:
            TypeError: The target is not a type, or is a Python class, which is ambiguous.
        """
        if not isinstance(target_type, (DataType, pa.DataType)):
            raise TypeError(
                f"target_type must be a DataType, such as DataType.int64() or DataType.string(); got"
                f" {target_type!r}"
            )
        from skate.data._expressions.calls import cast

        target = target_type.to_arrow_dtype() if isinstance(target_type, DataType) else target_type
        return self._call("cast", cast, target_type=target, safe=safe)

    # Functions by type.

    @property
    def str(self) -> StringNamespace:
        """Functions of text."""
        from skate.data._expressions.strings import StringNamespace

        return StringNamespace(self)

    @property
    def list(self) -> ListNamespace:
        """Functions of lists."""
        from skate.data._expressions.nested import ListNamespace

        return ListNamespace(self)

    @property
    def arr(self) -> ArrayNamespace:
        """Functions of fixed-size lists and tensors."""
        from skate.data._expressions.nested import ArrayNamespace

        return ArrayNamespace(self)

    @property
    def struct(self) -> StructNamespace:
        """Functions of structs."""
        from skate.data._expressions.nested import StructNamespace

        return StructNamespace(self)

    @property
    def map(self) -> MapNamespace:
        """Functions of maps."""
        from skate.data._expressions.nested import MapNamespace

        return MapNamespace(self)

    @property
    def dt(self) -> DatetimeNamespace:
        """Functions of datetimes."""
        from skate.data._expressions.datetimes import DatetimeNamespace

        return DatetimeNamespace(self)


def _as_list(values: Iterable[Any]) -> builtins.list[Any]:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    return [*values]
