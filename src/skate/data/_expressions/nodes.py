"""The basic nodes of a tree: columns, literals, operators, aliases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import pyarrow as pa

from skate.data._expressions.expr import Expr
from skate.data._expressions.fingerprints import freeze
from skate.data._expressions.operations import Operation
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

T = TypeVar("T")


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
def node(cls: type[T]) -> type[T]:
    """Decorate a node class: a dataclass without equality, because `==` builds an expression."""
    return dataclass(frozen=True, eq=False, repr=False)(cls)


def as_expr(value: Any) -> Expr:
    """Return an expression unchanged, and any other value as a literal."""
    return value if isinstance(value, Expr) else LiteralExpr(value)


@node
class ColumnExpr(Expr):
    """Read a column."""

    _name: str

    def __post_init__(self) -> None:
        if not isinstance(self._name, str):
            raise TypeError(f"col() takes a column name as a string, got {self._name!r}")

    @property
    def name(self) -> str:
        """The name of the column."""
        return self._name

    def own_key(self) -> Hashable:
        """Return the name."""
        return self._name

    def columns(self) -> set[str]:
        """Return the name."""
        return {self._name}

    def get_type(self, input_schema: pa.Schema) -> pa.DataType | None:
        """Return the type in the schema."""
        field = self.to_field(input_schema)
        return None if field is None else field.type

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return the nullability in the schema."""
        index = input_schema.get_field_index(self._name)
        return index < 0 or bool(input_schema.field(index).nullable)

    def to_field(self, input_schema: pa.Schema) -> pa.Field | None:
        """Return the field of the schema, with its metadata."""
        index = input_schema.get_field_index(self._name)
        return None if index < 0 else input_schema.field(index)


@node
class LiteralExpr(Expr):
    """A constant for all rows."""

    value: Any
    data_type: DataType = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.value, Expr):
            raise TypeError("lit() takes a value, got an expression: use the expression itself")
        object.__setattr__(self, "data_type", DataType.infer_dtype(self.value))

    def own_key(self) -> Hashable:
        """Return a key of the value that distinguishes equal values of different types."""
        return freeze(self.value)

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return whether the value is None."""
        return self.value is None


@node
class BinaryExpr(Expr):
    """Combine two expressions with an operator."""

    op: Operation
    left: Expr
    right: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the operands."""
        return (self.left, self.right)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the operator with other operands."""
        return BinaryExpr(self.op, *children)

    def own_key(self) -> Hashable:
        """Return the operator."""
        return self.op

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return whether an operand may hold nulls."""
        return self.left.nullable(input_schema) or self.right.nullable(input_schema)


@node
class UnaryExpr(Expr):
    """Apply an operator to one expression."""

    op: Operation
    operand: Expr
    data_type: DataType = field(init=False, default=DataType(pa.bool_()))

    def children(self) -> tuple[Expr, ...]:
        """Return the operand."""
        return (self.operand,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the operator with another operand."""
        return UnaryExpr(self.op, *children)

    def own_key(self) -> Hashable:
        """Return the operator."""
        return self.op

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return whether there may be nulls: null tests never return null."""
        return self.op is Operation.NOT and self.operand.nullable(input_schema)


@node
class AliasExpr(Expr):
    """Name the column that an expression computes."""

    expr: Expr
    _name: str
    _is_rename: bool = False
    data_type: DataType = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self._name, str):
            raise TypeError(f"alias() takes a name as a string, got {self._name!r}")
        object.__setattr__(self, "data_type", self.expr.data_type)

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    def children(self) -> tuple[Expr, ...]:
        """Return the named expression."""
        return (self.expr,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return another expression with the same name."""
        (child,) = children
        return AliasExpr(child, self._name, _is_rename=self._is_rename and isinstance(child, ColumnExpr))

    def own_key(self) -> Hashable:
        """Return the name, and whether it replaces the name of a column."""
        return (self._name, self._is_rename)

    def alias(self, name: str) -> AliasExpr:
        """Return the expression with another name."""
        return AliasExpr(self.expr, name, _is_rename=self._is_rename)

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return whether the named expression may hold nulls."""
        return self.expr.nullable(input_schema)

    def to_field(self, input_schema: pa.Schema) -> pa.Field | None:
        """Return the field of the named expression with the new name."""
        inner = self.expr.to_field(input_schema)
        return super().to_field(input_schema) if inner is None else inner.with_name(self._name)


@node
class StarExpr(Expr):
    """All columns of the input of a projection."""

    def own_key(self) -> Hashable:
        """Return a constant: all instances are equal."""
        return None

    def reads_all_columns(self) -> bool:
        """Return True."""
        return True

    def to_field(self, input_schema: pa.Schema) -> pa.Field | None:
        """Return None: it expands to many fields."""
        return None


@node
class UnnestExpr(Expr):
    """One column per field of a column of structs, in a projection."""

    expr: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the expression that computes the structs."""
        return (self.expr,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the fields of other structs."""
        return UnnestExpr(*children)

    def own_key(self) -> Hashable:
        """Return a constant: the child identifies the node."""
        return None

    def alias(self, name: str) -> AliasExpr:
        """Raise an error: the columns are named after the fields."""
        raise TypeError(
            f"unnest() cannot be aliased as {name!r}: it expands to one column per field, named after the field"
        )

    def to_field(self, input_schema: pa.Schema) -> pa.Field | None:
        """Return None: it expands to many fields."""
        return None


def strip_alias(expr: Expr) -> Expr:
    """Return an expression without its alias."""
    while isinstance(expr, AliasExpr):
        expr = expr.expr
    return expr


def substitute_columns(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """Replace columns of an expression with other expressions; it keeps its name."""
    replaced = _substitute(expr, replacements)
    if expr.name is not None and replaced.name != expr.name:
        return replaced.alias(expr.name)
    return replaced


def _substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    if isinstance(expr, ColumnExpr):
        return strip_alias(replacements[expr.name]) if expr.name in replacements else expr
    before = expr.children()
    after = [_substitute(child, replacements) for child in before]
    # A tree without these columns is returned unchanged, which keeps its cached values.
    return expr if all(a is b for a, b in zip(after, before, strict=True)) else expr.with_children(after)
