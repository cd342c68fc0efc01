"""Sets of used rows of a reader: a range from the first row and, with a local shuffle, some later rows."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
_ALL_ROWS = 1 << 62


@dataclass(frozen=True, slots=True)
class UsedRows:
    """The used rows of one reader.

    Attributes:
        first: All rows before this one are used.
        more: One bit per following row, as packed by NumPy's packbits.
    """

    first: int = 0
    more: bytes = b""

    @classmethod
    def all_rows(cls) -> UsedRows:
        """Return the used rows of a reader that has finished."""
        return cls(_ALL_ROWS)

    def unused(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the unused ranges between the rows `start` and `stop`."""
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
        """Return a JSON value: a number, or a number and a text."""
        if not self.more:
            return self.first
        return [self.first, base64.b64encode(zlib.compress(self.more)).decode()]

    @classmethod
    def from_json(cls, value: Any) -> UsedRows:
        """Return the used rows of a value of `as_json`."""
        if isinstance(value, int):
            return cls(value)
        first, more = value
        return cls(first, zlib.decompress(base64.b64decode(more)))


class UsedRowsTally:
    """Tracks the rows that a reader uses."""

    def __init__(self) -> None:
        self._first = 0
        self._later = np.zeros(0, bool)  # whether each row from `_first` on is used

    def add(self, rows: int | Numbers) -> None:
        """Mark rows as used: the next ones by their count, or any by their numbers."""
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
        """Return the used rows."""
        last = np.flatnonzero(self._later)
        more = self._later[: last[-1] + 1] if len(last) else self._later[:0]
        return UsedRows(self._first, np.packbits(more).tobytes())
