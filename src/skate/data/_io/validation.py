"""Check names of options and columns before anything is read or written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from skate._base.suggestions import closest


def check_spelling(given: Iterable[str], known: Collection[str], call: str) -> None:
    """Raise an error for options that resemble a known one; other names may belong to another library.

    Args:
        given: Names of the options.
        known: The options of Skate.
        call: What accepts them, for the message: `this writer`.

    Raises:
        TypeError: An option is misspelled; the message names the closest one.
    """
    for name in given:
        close = closest(name, known, alike=0.85)
        if close is not None and name not in known:
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}: did you mean {close!r}?")


def check_known(
    given: Iterable[str], known: Collection[str], reader: str, parameters: Collection[str] = ()
) -> None:
    """Raise an error for unknown options.

    Args:
        given: Names of the options.
        known: The options that the reader accepts.
        reader: The public call, for the message: `read_csv`.
        parameters: Parameters of the reader, also candidates for a misspelled name.

    Raises:
        TypeError: An option is unknown; the message names the closest one.
    """
    for name in given:
        if name not in known:
            close = closest(name, [*known, *parameters])
            hint = f"did you mean {close!r}?" if close else f"use one of {', '.join(sorted(known))}"
            raise TypeError(f"{reader} got an unexpected keyword argument {name!r}: {hint}")


def select_fields(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of the selected columns.

    Raises:
        ValueError: A column does not exist; the message names the closest one.
    """
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        close = closest(missing[0], schema.names)
        hint = f"did you mean {close!r}?" if close else f"the columns are {schema.names}"
        raise ValueError(f"no column {missing[0]!r} to read: {hint}")
    return pa.schema([schema.field(name) for name in columns])
