"""Parse JSON with Python: consecutive values, or the elements of an array, a few at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from skate.data._block import rows

_SPACE = re.compile(r"\s*")
_SEPARATOR = re.compile(r"[\s,]*")
_BOM = codecs.BOM_UTF8
# Limits the rows of one block: as Python objects they take a multiple of their text.
_TEXT_PER_BLOCK = 8 << 20
_decode = json.JSONDecoder().raw_decode


def starts_array(text: bytes) -> bool:
    """Return whether a document starts like an array of objects."""
    return text.removeprefix(_BOM).lstrip()[:1] == b"["


def decode(piece: bytes, at_end: bool) -> tuple[pa.Table | None, bytes]:
    """Parse the values in a piece of text; return them as a block, with the incomplete rest.

    Args:
        piece: Values, separated by whitespace only.
        at_end: Nothing follows, so an incomplete value is an error.

    Raises:
        ValueError: The text is not valid JSON; the message says where.
    """
    text = piece.removeprefix(_BOM).decode()
    values: list[Any] = []
    position = _skip(_SPACE, text, 0)
    while position < len(text):
        try:
            value, end = _decode(text, position)
        except json.JSONDecodeError as error:
            # A later line starts an object in its first column, so this value is broken, not incomplete.
            if at_end or "\n{" in text[position:]:
                line = text.count("\n", 0, error.pos) + 1
                raise ValueError(
                    f"{error.msg} in line {line} of the text around {_around(text, error.pos)!r}"
                ) from error
            break
        values.append(value)
        position = _skip(_SPACE, text, end)
    return to_block(values) if values else None, text[position:].encode()


def array_blocks(file: pa.NativeFile, start: bytes, step: int) -> Iterator[pa.Table]:
    """Yield blocks of the elements of an array of objects; read the file as needed.

    Args:
        file: The file, positioned after `start`.
        start: The text read so far.
        step: Bytes to read at a time.

    Raises:
        ValueError: The text is not valid JSON; the message says where.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = decoder.decode(start.removeprefix(_BOM))
    position = text.index("[") + 1
    values: list[Any] = []
    taken = 0
    while True:
        position = _skip(_SEPARATOR, text, position)
        if text.startswith("]", position):
            break
        try:
            value, end = _decode(text, position)
            complete = end < len(text)  # a number at the very end may continue
        except json.JSONDecodeError as error:
            complete, reason = False, error
        else:
            reason = json.JSONDecodeError("the array does not end", text, end)
        if complete:
            values.append(value)
            taken += end - position
            position = end
            if taken >= _TEXT_PER_BLOCK:
                yield to_block(values)
                values, taken = [], 0
            continue
        data = file.read(
            max(step, len(text) - position)
        )  # doubles the buffer, so that long values take linear time
        if not data:
            raise ValueError(f"{reason.msg} around {_around(text, reason.pos)!r}") from reason
        text, position = text[position:] + decoder.decode(data), 0
    if values:
        yield to_block(values)


def to_block(values: Sequence[Any]) -> pa.Table:
    """Return JSON values as a block; values that fit no Arrow type stay Python objects.

    Raises:
        ValueError: A value is neither an object nor a list.
    """
    found: list[Mapping[str, Any]] = []
    for value in values:
        if isinstance(value, list):
            found.append({str(number): element for number, element in enumerate(value)})
        elif isinstance(value, dict):
            found.append(value)
        else:
            raise ValueError(f"a row must be an object, got {value!r}: use read_text instead")
    return rows.to_block_with_objects(found)


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    assert match is not None  # the pattern matches the empty string
    return match.end()


def _around(text: str, position: int) -> str:
    return text[max(0, position - 20) : position + 20]
