"""Errors in expressions."""

from __future__ import annotations

from collections.abc import Sequence


class ExpressionError(Exception):
    """Report that an expression cannot be built, planned or evaluated."""

    def __str__(self) -> str:
        # `KeyError` would quote the message.
        return str(self.args[0]) if self.args else ""


class ExpressionTypeError(ExpressionError, TypeError):
    """Report that an operator or function does not accept values of these types."""


class ExpressionValueError(ExpressionError, ValueError):
    """Report a value that an operator or function does not accept, such as a divisor of zero."""


class ColumnNotFoundError(ExpressionError, KeyError, ValueError):
    """Report a column that does not exist.

    Args:
        message: The message.
        column: The name of the column.
    """

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message, column)
        self.column = column


def missing_column(name: str, names: Sequence[str]) -> ColumnNotFoundError:
    """Return the error for a column that does not exist, or whose name is ambiguous."""
    among = ", ".join(map(repr, names)) or "none"
    found = "are several columns" if name in names else "is no column"
    return ColumnNotFoundError(f"there {found} {name!r}; the columns are {among}", name)


class NotExpressibleError(ExpressionError, TypeError):
    """Report an expression without an equivalent in `pyarrow.compute.Expression`."""


class PredicateSyntaxError(ExpressionError, ValueError):
    """Report a predicate string that cannot be parsed."""
