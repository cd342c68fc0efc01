"""Filters: triples of column, "=" or "!=", and value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from skate._base.suggestions import did_you_mean
from skate.util.state._schema import StateSchema
from skate.util.state.common import Filter
from skate.util.state.exception import InvalidQueryError

S = TypeVar("S", bound=StateSchema)

OPERATORS = ("=", "!=")
_TRUE = ("true", "1")
_FALSE = ("false", "0")


def checked(filters: Sequence[Filter] | None, schema: type[StateSchema]) -> list[tuple[str, str, Any]]:
    """Return filters with known columns and operators, and values of the columns' types.

    Raises:
        InvalidQueryError: A column, operator or value cannot be right.
    """
    return [_checked(each, schema) for each in filters or []]


def _checked(each: Any, schema: type[StateSchema]) -> tuple[str, str, Any]:
    if not isinstance(each, (tuple, list)) or len(each) != 3:
        raise InvalidQueryError(f"A filter is (column, '=' or '!=', value), not {each!r}")
    column, operator, value = each
    if operator not in OPERATORS:
        raise InvalidQueryError(
            f"The filter {each!r} has the operator {operator!r}; '=' and '!=' are supported."
        )
    known = schema.filterable_columns()
    column = str(column).lower()
    if column not in known:
        hint = did_you_mean(column, known)
        raise InvalidQueryError(
            f"Cannot filter by {column!r}; filters may use {', '.join(sorted(known))}.{hint}"
        )
    return column, operator, _value(column, value, schema.kind_of(column))


def _value(column: str, value: Any, kind: type) -> Any:
    if kind is bool and not isinstance(value, bool):
        word = str(value).lower()
        if word not in _TRUE + _FALSE:
            raise InvalidQueryError(f"The filter on {column!r} needs true or false, not {value!r}")
        return word in _TRUE
    if kind in (int, float) and value is not None:
        try:
            return kind(value)
        except (TypeError, ValueError) as error:
            noun = "a whole number" if kind is int else "a number"
            raise InvalidQueryError(f"The filter on {column!r} needs {noun}, not {value!r}") from error
    return value


def matching(rows: Iterable[S], filters: list[tuple[str, str, Any]]) -> list[S]:
    """Return the rows that meet all filters; text is compared without regard to case."""
    return [
        row
        for row in rows
        if all(_same(row[column], value) == (operator == "=") for column, operator, value in filters)
    ]


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, str):
        return found.lower() == wanted.lower()
    if isinstance(wanted, str) and isinstance(found, (dict, list)):
        return str(found) == wanted
    return bool(found == wanted)
