"""The base of every expression: the operators and methods that build trees, and the questions a planner asks.

What can be done with a tree stands in modules of its own (`evaluate`, `to_pyarrow`, `schemas`, …), which know all the
kinds of nodes; the methods here lead there. They import when called, since every node derives from this class.
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
    """Say how to compute a column from the columns of a dataset.

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

    # What a node is made of.

    @property
    def name(self) -> builtins.str | None:
        """The name of the column it computes; None if it has none."""
        return None

    def children(self) -> tuple[Expr, ...]:
        """Return the expressions it is made of."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the same node over other children, given in the order of `children()`."""
        return self

    def own_key(self) -> Hashable:
        """Return what makes this node differ from others of its class, its children left out."""
        raise NotImplementedError  # not an abstract base class, which makes every isinstance slow

    def walk(self) -> Iterator[Expr]:
        """Yield it and all it is made of, parents first."""
        yield self
        for child in self.children():
            yield from child.walk()

    def fingerprint(self) -> Fingerprint:
        """Return a key that is equal for trees of the same structure."""
        cached: Fingerprint | None = self.__dict__.get("_fingerprint")
        if cached is None:
            children = (child.fingerprint() for child in self.children())
            cached = Fingerprint((type(self).__name__, self.own_key(), *children))
            self.__dict__["_fingerprint"] = cached  # nodes never change
        return cached

    def __getstate__(self) -> dict[builtins.str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_fingerprint"}

    def structurally_equals(self, other: Any) -> bool:
        """Tell whether the other is a tree of the same nodes; `==` builds an expression instead."""
        return isinstance(other, Expr) and self.fingerprint() == other.fingerprint()

    # What a planner asks.

    def columns(self) -> set[builtins.str]:
        """Return the names of the columns it reads; `reads_all_columns` tells whether there are more."""
        return set().union(*(child.columns() for child in self.children()))

    def reads_all_columns(self) -> bool:
        """Tell whether it reads every column there is: `star()`, or an expression of pyarrow's own."""
        return any(child.reads_all_columns() for child in self.children())

    def is_deterministic(self) -> bool:
        """Tell whether evaluating it again on the same rows gives the same values."""
        return all(child.is_deterministic() for child in self.children())

    def is_idempotent(self) -> bool:
        """Tell the same as `is_deterministic`, under Ray's name."""
        return self.is_deterministic()

    def needs_actor(self) -> bool:
        """Tell whether it uses a callable class, whose object has to live as long as its worker."""
        return any(child.needs_actor() for child in self.children())

    def substitute(self, replacements: Mapping[builtins.str, Expr]) -> Expr:
        """Return the expression that reads other expressions in place of columns; its name stays.

        >>> from skate.data.expressions import col
        >>> (col("b") > 3).substitute({"b": col("a") + 1})
        GT
            ├── left: ADD
            │   ├── left: COL('a')
            │   └── right: LIT(1)
            └── right: LIT(3)
        """
        from skate.data._expressions.nodes import substituted

        return substituted(self, replacements)

    def get_type(self, input_schema: pa.Schema) -> pa.DataType | None:
        """Return the type of the column it computes; None if that cannot be known before it runs."""
        from skate.data._expressions.evaluate import output_type

        return output_type(self, input_schema)

    def output_type(self, schema: pa.Schema) -> pa.DataType | None:
        """Return the type of the column it computes; None if that cannot be known before it runs."""
        return self.get_type(schema)

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Tell whether the column it computes may hold nulls."""
        return True

    def to_field(self, input_schema: pa.Schema) -> pa.Field | None:
        """Return name, type and nullability of the column it computes; None if one of them is not known."""
        column_type = self.get_type(input_schema)
        if self.name is None or column_type is None:
            return None
        return pa.field(self.name, column_type, nullable=self.nullable(input_schema))

    def to_pyarrow(self, schema: pa.Schema | None = None) -> pc.Expression:
        """Return it as an expression of pyarrow's, which readers can evaluate while they read.

        Args:
            schema: The columns it will read. With it, operators that mean different things for different types
                (`+` on text, functions on dictionary-encoded columns) are said for the types at hand.

        Raises:
            NotExpressibleError: pyarrow cannot say it.
        """
        from skate.data._expressions.to_pyarrow import to_pyarrow

        return to_pyarrow(self, schema)

    def evaluate(self, block: pa.Table, context: EvaluationContext | None = None) -> Value:
        """Return its value for every row of a block; a scalar stands for the same value in each."""
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
            f"{inline(self)} has a value for each row, not one that is true or false: combine expressions with"
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
        """Tell for each row whether the value is null; a NaN is not."""
        return self._unary(Operation.IS_NULL)

    def is_not_null(self) -> UnaryExpr:
        """Tell for each row whether the value is not null."""
        return self._unary(Operation.IS_NOT_NULL)

    def is_in(self, values: Iterable[Any] | Expr) -> BinaryExpr:
        """Tell for each row whether the value is one of these; null is only if None is among them.

        Args:
            values: The values, or a literal that holds them.
        """
        return self._membership(Operation.IN, values)

    def not_in(self, values: Iterable[Any] | Expr) -> BinaryExpr:
        """Tell for each row whether the value is none of these; see `is_in`."""
        return self._membership(Operation.NOT_IN, values)

    def _membership(self, op: Operation, values: Any) -> BinaryExpr:
        iterable = isinstance(values, Expr) or hasattr(values, "__iter__")
        if not iterable or isinstance(values, (str, bytes)):
            raise TypeError(f"is_in and not_in take a list of values, got {values!r}: write [{values!r}]")
        return self._binary(op, values if isinstance(values, Expr) else _as_list(values))

    def alias(self, name: builtins.str) -> AliasExpr:
        """Give the column it computes a name."""
        from skate.data._expressions.nodes import AliasExpr

        return AliasExpr(self, name)

    def _rename(self, name: builtins.str) -> AliasExpr:
        """Name a column anew: beside `star()`, the new name takes the place of the old one."""
        from skate.data._expressions.nodes import AliasExpr

        return AliasExpr(self, name, _is_rename=True)

    # Functions of numbers.

    def _call(
        self, label: builtins.str, function: Callable[..., Any], *args: Any, **options: Any
    ) -> PyArrowComputeUDFExpr:
        from skate.data._expressions.calls import compute

        return compute(label, function, self, *args, **options)

    def ceil(self) -> PyArrowComputeUDFExpr:
        """Round up to a whole number."""
        return self._call("ceil", pc.ceil)

    def floor(self) -> PyArrowComputeUDFExpr:
        """Round down to a whole number."""
        return self._call("floor", pc.floor)

    def round(self, ndigits: int = 0) -> PyArrowComputeUDFExpr:
        """Round to the nearest number with so many digits after the point; halves to the even one."""
        return self._call("round", pc.round, **({"ndigits": ndigits} if ndigits else {}))

    def trunc(self) -> PyArrowComputeUDFExpr:
        """Round towards zero to a whole number."""
        return self._call("trunc", pc.trunc)

    def ln(self) -> PyArrowComputeUDFExpr:
        """Take the natural logarithm; NaN for a negative number."""
        return self._call("ln", pc.ln)

    def log10(self) -> PyArrowComputeUDFExpr:
        """Take the logarithm to base 10."""
        return self._call("log10", pc.log10)

    def log2(self) -> PyArrowComputeUDFExpr:
        """Take the logarithm to base 2."""
        return self._call("log2", pc.log2)

    def exp(self) -> PyArrowComputeUDFExpr:
        """Raise e to the value."""
        return self._call("exp", pc.exp)

    def sin(self) -> PyArrowComputeUDFExpr:
        """Take the sine of an angle in radians."""
        return self._call("sin", pc.sin)

    def cos(self) -> PyArrowComputeUDFExpr:
        """Take the cosine of an angle in radians."""
        return self._call("cos", pc.cos)

    def tan(self) -> PyArrowComputeUDFExpr:
        """Take the tangent of an angle in radians."""
        return self._call("tan", pc.tan)

    def asin(self) -> PyArrowComputeUDFExpr:
        """Take the arc sine; NaN outside of -1 to 1."""
        return self._call("asin", pc.asin)

    def acos(self) -> PyArrowComputeUDFExpr:
        """Take the arc cosine; NaN outside of -1 to 1."""
        return self._call("acos", pc.acos)

    def atan(self) -> PyArrowComputeUDFExpr:
        """Take the arc tangent."""
        return self._call("atan", pc.atan)

    def negate(self) -> PyArrowComputeUDFExpr:
        """Change the sign."""
        return self._call("negate", pc.negate_checked)

    def sign(self) -> PyArrowComputeUDFExpr:
        """Return -1, 0 or 1."""
        return self._call("sign", pc.sign)

    def abs(self) -> PyArrowComputeUDFExpr:
        """Take the absolute value."""
        return self._call("abs", pc.abs_checked)

    def power(self, exponent: Any) -> PyArrowComputeUDFExpr:
        """Raise to a power: a number or an expression."""
        return self._call("power", pc.power, exponent)

    def cast(self, target_type: DataType | pa.DataType, *, safe: bool = True) -> PyArrowComputeUDFExpr:
        """Convert to another type.

        Args:
            target_type: The type, such as `DataType.int64()`.
            safe: Whether a value that the type cannot hold exactly is an error; otherwise it is cut to fit.

        Raises:
            TypeError: It is not a type, or a Python class, which says too little.
        """
        if not isinstance(target_type, (DataType, pa.DataType)):
            raise TypeError(
                f"target_type must be a DataType, such as DataType.int64() or DataType.string(); got"
                f" {target_type!r}"
            )
        from skate.data._expressions.calls import cast

        target = target_type.to_arrow_dtype() if isinstance(target_type, DataType) else target_type
        return self._call("cast", cast, target_type=target, safe=safe)

    # Functions of other kinds of columns.

    @property
    def str(self) -> StringNamespace:
        """The functions of text."""
        from skate.data._expressions.strings import StringNamespace

        return StringNamespace(self)

    @property
    def list(self) -> ListNamespace:
        """The functions of lists."""
        from skate.data._expressions.nested import ListNamespace

        return ListNamespace(self)

    @property
    def arr(self) -> ArrayNamespace:
        """The functions of lists of one length, and of tensors."""
        from skate.data._expressions.nested import ArrayNamespace

        return ArrayNamespace(self)

    @property
    def struct(self) -> StructNamespace:
        """The functions of records."""
        from skate.data._expressions.nested import StructNamespace

        return StructNamespace(self)

    @property
    def map(self) -> MapNamespace:
        """The functions of mappings."""
        from skate.data._expressions.nested import MapNamespace

        return MapNamespace(self)

    @property
    def dt(self) -> DatetimeNamespace:
        """The functions of points in time."""
        from skate.data._expressions.datetimes import DatetimeNamespace

        return DatetimeNamespace(self)


def _as_list(values: Iterable[Any]) -> builtins.list[Any]:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    return [*values]
