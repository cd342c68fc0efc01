"""Striped sharding: divides one sequence of rows between several readers, and computes the unused rest.

Each reader gets one stripe of rows in turn, round after round; the rows after the last full round are divided equally.
So the number of rows that a reader has used determines which rows these are. Any number of other readers can continue
an interrupted sequence: they get each unused row once. If they are interrupted too, the same computation is applied
again to the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, Self, TypeVar

from skate.data._iteration.row_ranges import UsedRows

MAX_STRIPE = 4096  # rows


class Rows(Protocol):
    """A slice of a sequence of rows."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def cut(self, start: int, stop: int) -> Self:
        """Return rows `start` to `stop` of the slice."""


Cut = TypeVar("Cut", bound=Rows)


@dataclass(frozen=True, slots=True)
class ShardUsage:
    """The used rows of a sequence whose readers were interrupted.

    Attributes:
        stripe: Number of rows of a stripe.
        used: The used rows of each reader.
    """

    stripe: int
    used: tuple[UsedRows, ...]


def stripe_for(first: int, readers: int) -> int:
    """Return the number of rows of a stripe, so that each reader gets a part of the first item of `first` rows."""
    return max(1, min(MAX_STRIPE, first // readers))


class StripedSharder(Generic[Cut]):
    """Divides a sequence of rows between readers.

    Args:
        readers: Number of readers.
        stripe: Number of rows of a stripe.
    """

    def __init__(self, readers: int, stripe: int) -> None:
        self.readers = readers
        self.stripe = stripe
        self._held: list[Cut] = []  # rows of an incomplete round
        self._held_rows = 0

    def take(self, item: Cut) -> Iterator[tuple[int, Cut]]:
        """Divide the next item; yield pairs of a reader and its rows, in the order of the sequence."""
        self._held.append(item)
        self._held_rows += item.rows
        whole = self._held_rows - self._held_rows % (self.readers * self.stripe)
        if whole:
            yield from self._divide(self._take_rows(whole), self.stripe)

    def end(self) -> Iterator[tuple[int, Cut]]:
        """Divide the rest of the sequence into equal parts; keep the remainder."""
        if each := self._held_rows // self.readers:
            yield from self._divide(self._take_rows(each * self.readers), each)

    def rest(self) -> list[Cut]:
        """Return the remainder, which no reader gets."""
        return self._take_rows(self._held_rows)

    def _divide(self, items: Iterable[Cut], stripe: int) -> Iterator[tuple[int, Cut]]:
        reader, left = 0, stripe
        for item in items:
            at = 0
            while at < item.rows:
                stop = min(item.rows, at + left)
                yield reader, item.cut(at, stop)
                left -= stop - at
                at = stop
                if not left:
                    reader, left = (reader + 1) % self.readers, stripe

    def _take_rows(self, rows: int) -> list[Cut]:
        """Remove and return the first held rows."""
        self._held_rows -= rows
        released: list[Cut] = []
        for place, item in enumerate(self._held):
            if rows < item.rows:
                if rows:
                    released.append(item.cut(0, rows))
                self._held = [item.cut(rows, item.rows), *self._held[place + 1 :]]
                return released
            released.append(item)
            rows -= item.rows
        self._held = []
        return released


def remaining(items: Iterable[Cut], usage: ShardUsage) -> Iterator[Cut]:
    """Yield the rows of a sequence that no reader has used, in order."""
    sharder: StripedSharder[Cut] = StripedSharder(len(usage.used), usage.stripe)
    got = [0] * sharder.readers  # number of rows of each reader so far
    for reader, item in chain(chain.from_iterable(map(sharder.take, items)), sharder.end()):
        begin = got[reader]
        got[reader] += item.rows
        for start, stop in usage.used[reader].unused(begin, got[reader]):
            yield item.cut(start - begin, stop - begin)
    yield from sharder.rest()
