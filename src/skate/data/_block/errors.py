"""What can be wrong with a batch, a row or a block that a program hands over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class BatchTypeError(TypeError, ValueError):
    """Report a batch, or a column of one, of a type that no block can be made of.

    It is a `ValueError` too, because that is what Ray raises here.

    Args:
        what: What was looked at: `a batch`, `a row`, `column 'x'`.
        got: The type that was found.
        allowed: The types that are allowed, as a phrase.
    """

    def __init__(self, what: str, got: str, allowed: str) -> None:
        super().__init__(what, got, allowed)
        self.what = what
        self.got = got
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.what} is of type {self.got}, but has to be {self.allowed}"


class ColumnLengthsError(ValueError):
    """Report columns of one batch that differ in length.

    Args:
        lengths: The number of values in each column, by name.
    """

    def __init__(self, lengths: Mapping[str, int]) -> None:
        super().__init__(dict(lengths))
        self.lengths = dict(lengths)

    def __str__(self) -> str:
        listed = ", ".join(f"{name!r}: {length}" for name, length in self.lengths.items())
        return (
            f"the columns of a batch have to be of one length, but have {{{listed}}}; "
            f"return one value for each row in every column"
        )


class DuplicateColumnsError(ValueError):
    """Report a batch in which two columns have one name.

    Args:
        names: The names that occur more than once.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        super().__init__(self.names)

    def __str__(self) -> str:
        return f"the columns of a batch need names of their own, but these occur more than once: {self.names}"


class MixedTypesError(TypeError, ValueError):
    """Report a column whose values are of types that share no Arrow type.

    Args:
        column: Its name.
        first_rows: For each kind of value, the first row that has it and that value's `repr`.
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
    """Report a column that has types in different blocks which share no common type.

    Args:
        column: Its name; a path with dots inside a struct, with `[]` inside a list.
        types: The types that were found, as text.
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
    """Report a column with a value that does not fit the type the dataset has for it.

    Args:
        column: Its name.
        from_type: The type it has in this block, as text.
        to_type: The type of the dataset's schema, as text.
        reason: What Arrow said.
    """

    def __init__(self, column: str, from_type: str, to_type: str, reason: str) -> None:
        super().__init__(column, from_type, to_type, reason)
        self.column = column
        self.from_type = from_type
        self.to_type = to_type
        self.reason = reason

    def __str__(self) -> str:
        return f"column {self.column!r} cannot be turned from {self.from_type} into {self.to_type}: {self.reason}"
