"""Errors in batches, rows and blocks that a program passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class BatchTypeError(TypeError, ValueError):
    """Report a batch, or a column of a batch, of a type that cannot be converted to a block.

    It is also a `ValueError`, because that is what Ray raises.

    Args:
        what: The object: `a batch`, `a row`, `column 'x'`.
        got: Its type.
        allowed: The allowed types, as a phrase.
    """

    def __init__(self, what: str, got: str, allowed: str) -> None:
        super().__init__(what, got, allowed)
        self.what = what
        self.got = got
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.what} is of type {self.got}, but must be {self.allowed}"


class ColumnLengthsError(ValueError):
    """Report columns of one batch with different lengths.

    Args:
        lengths: The length of each column, by name.
    """

    def __init__(self, lengths: Mapping[str, int]) -> None:
        super().__init__(dict(lengths))
        self.lengths = dict(lengths)

    def __str__(self) -> str:
        listed = ", ".join(f"{name!r}: {length}" for name, length in self.lengths.items())
        return (
            f"the columns of a batch must have the same length, got {{{listed}}}; "
            f"return one value per row in every column"
        )


class DuplicateColumnsError(ValueError):
    """Report a batch in which several columns have the same name.

    Args:
        names: The names that occur more than once.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        super().__init__(self.names)

    def __str__(self) -> str:
        return f"the columns of a batch must have unique names, but these occur more than once: {self.names}"


class MixedTypesError(TypeError, ValueError):
    """Report a column whose values have no common Arrow type.

    Args:
        column: Name of the column.
        first_rows: For each kind of value, its first row and the `repr` of the value there.
    """

    def __init__(self, column: str, first_rows: Mapping[str, tuple[int, str]]) -> None:
        super().__init__(column, dict(first_rows))
        self.column = column
        self.first_rows = dict(first_rows)

    def __str__(self) -> str:
        listed = ", ".join(
            f"{kind} (first in row {row}: {value})" for kind, (row, value) in self.first_rows.items()
        )
        return f"column {self.column!r} mixes {listed}; convert its values to one type"


class SchemaConflictError(TypeError, ValueError):
    """Report a column whose types in different blocks have no common type.

    Args:
        column: Name of the column; a dotted path inside a struct, with `[]` inside a list.
        types: The types, as text.
    """

    def __init__(self, column: str, types: Iterable[str]) -> None:
        self.column = column
        self.types = tuple(types)
        super().__init__(column, self.types)

    def __str__(self) -> str:
        return (
            f"column {self.column!r} is {' in one block and '.join(self.types)} in another; "
            f"cast it to one type, for example with `map_batches`"
        )


class ColumnCastError(ValueError):
    """Report a column with a value that does not fit the column's type in the dataset.

    Args:
        column: Name of the column.
        from_type: The type in this block, as text.
        to_type: The type in the schema of the dataset, as text.
        reason: The error message of Arrow.
    """

    def __init__(self, column: str, from_type: str, to_type: str, reason: str) -> None:
        super().__init__(column, from_type, to_type, reason)
        self.column = column
        self.from_type = from_type
        self.to_type = to_type
        self.reason = reason

    def __str__(self) -> str:
        return f"column {self.column!r} cannot be cast from {self.from_type} to {self.to_type}: {self.reason}"
