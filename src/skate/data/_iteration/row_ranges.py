"""Which rows a reader has used: the first so many, or with a shuffle, some of the following ones too."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
_EVERYTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class UsedRows:
    """Rows of one reader that have been used.

    Attributes:
        first: All rows before this one have been.
        more: Of the rows from there on, a bit for each, by NumPy's packbits.
    """

    first: int = 0
    more: bytes = b""

    @classmethod
    def everything(cls) -> UsedRows:
        """Return what a reader has used that has come to the end."""
        return cls(_EVERYTHING)

    def unused(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of rows from `start` to `stop` that have not been used."""
        start = max(start, self.first)
        if start >= stop:
            return
        if not self.more:
            yield start, stop
            return
        bits = np.unpackbits(np.frombuffer(self.more, np.uint8))[start - self.first : stop - self.first]
        free = np.concatenate(([0], 1 - bits, np.ones(stop - start - len(bits), np.uint8), [0])).astype(
            np.int8
        )
        borders = np.flatnonzero(np.diff(free)) + start
        yield from zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True)

    def as_json(self) -> Any:
        """Return it as JSON can hold it: a number, or a number and text."""
        if not self.more:
            return self.first
        return [self.first, base64.b64encode(zlib.compress(self.more)).decode()]

    @classmethod
    def from_json(cls, value: Any) -> UsedRows:
        """Return what `as_json` was made of."""
        if isinstance(value, int):
            return cls(value)
        first, more = value
        return cls(first, zlib.decompress(base64.b64decode(more)))


class UsedRowsTally:
    """Counts the rows that a reader uses."""

    def __init__(self) -> None:
        self._first = 0
        self._later = np.zeros(0, bool)  # of the rows from `_first` on, which have been used

    def add(self, rows: int | Numbers) -> None:
        """Note that the next so many rows are used, or those of the given numbers."""
        if isinstance(rows, int):
            self._first += rows
            return
        if not len(rows):
            return
        places = rows - self._first
        missing = int(places.max()) + 1 - len(self._later)
        if missing > 0:
            self._later = np.concatenate((self._later, np.zeros(max(missing, len(self._later)), bool)))
        self._later[places] = True
        if self._later[0]:
            unused = np.flatnonzero(~self._later)
            ahead = int(unused[0]) if len(unused) else len(self._later)
            self._first += ahead
            self._later = self._later[ahead:]

    def used(self) -> UsedRows:
        """Return which rows have been used so far."""
        last = np.flatnonzero(self._later)
        more = self._later[: last[-1] + 1] if len(last) else self._later[:0]
        return UsedRows(self._first, np.packbits(more).tobytes())
