"""What can be wrong with an expression."""

from __future__ import annotations

from collections.abc import Sequence


class ExpressionError(Exception):
    """Report that an expression cannot be built, planned or evaluated."""

    def __str__(self) -> str:
        # KeyError, which one of the classes below is, would print the sentence in quotes.
        return str(self.args[0]) if self.args else ""


class ExpressionTypeError(ExpressionError, TypeError):
    """Report that an operator or function does not take values of these types."""


class ExpressionValueError(ExpressionError, ValueError):
    """Report that a value is one that an operator or function cannot take, such as a zero to divide by."""


class ColumnNotFoundError(ExpressionError, KeyError, ValueError):
    """Report that an expression reads a column that does not exist.

    Args:
        message: What happened.
        column: The column that was asked for.
    """

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message, column)
        self.column = column


def missing_column(name: str, names: Sequence[str]) -> ColumnNotFoundError:
    """Return the error for a column that is not among the columns, or that is there more than once."""
    among = ", ".join(map(repr, names)) or "none"
    found = "are several columns" if name in names else "is no column"
    return ColumnNotFoundError(f"there {found} {name!r}; the columns are {among}", name)


class NotExpressibleError(ExpressionError, TypeError):
    """Report that `pyarrow.compute.Expression` cannot say what an expression says."""


class PredicateSyntaxError(ExpressionError, ValueError):
    """Report that a predicate given as a string cannot be understood."""
