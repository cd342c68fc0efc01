"""Options that a reader does not know, found before anything is read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa


def check_spelling(given: Iterable[str], known: Collection[str], call: str) -> None:
    """Refuse options that look like a known one, where other names may be options of another library.

    Args:
        given: Their names.
        known: The options of Skate's.
        call: What takes them: `this writer`.

    Raises:
        TypeError: An option is misspelt; names the closest one.
    """
    for name in given:
        close = difflib.get_close_matches(name, known, 1, 0.85)
        if close and name not in known:
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}: did you mean {close[0]!r}?")


def check_known(
    given: Iterable[str], known: Collection[str], reader: str, parameters: Collection[str] = ()
) -> None:
    """Refuse options that nobody would look at.

    Args:
        given: Their names.
        known: What the reader takes.
        reader: The call that the user made: `read_csv`.
        parameters: The reader's parameters, which may be misspelt too.

    Raises:
        TypeError: An option is unknown; names the closest one.
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, [*known, *parameters], 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
            raise TypeError(f"{reader} got an unexpected keyword argument {name!r}: {hint}")


def select_fields(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of some columns.

    Raises:
        ValueError: There is no such column; names the closest one.
    """
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        close = difflib.get_close_matches(missing[0], schema.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {schema.names}"
        raise ValueError(f"no column {missing[0]!r} to read: {hint}")
    return pa.schema([schema.field(name) for name in columns])
