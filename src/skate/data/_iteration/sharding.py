"""How one sequence of rows is shared by several readers, and what is left of it when they start over.

Rows are dealt like cards: a stripe to each reader in turn, round after round, and what is left at the end in equal
parts. Which rows a reader has got is arithmetic, then, on how many it has used. So a sequence that was begun by some
readers can be gone on with by any number of others, who get each row that none of the first has used, once. If they are
interrupted too, the same is done again on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, Self, TypeVar

from skate.data._iteration.row_ranges import UsedRows

LARGEST_STRIPE = 4096  # rows


class Rows(Protocol):
    """Some rows in a sequence."""

    @property
    def rows(self) -> int:
        """How many there are."""

    def cut(self, start: int, stop: int) -> Self:
        """Return those from `start` to `stop`."""


Cut = TypeVar("Cut", bound=Rows)


@dataclass(frozen=True, slots=True)
class ShardUsage:
    """What became of a sequence whose readers were interrupted.

    Attributes:
        stripe: Rows that a reader got at a time.
        used: Which of its rows each reader has used.
    """

    stripe: int
    used: tuple[UsedRows, ...]


def stripe_for(first: int, readers: int) -> int:
    """Return how many rows to deal at a time, given how many come first: everybody has some at once."""
    return max(1, min(LARGEST_STRIPE, first // readers))


class StripedSharder(Generic[Cut]):
    """Deals a sequence of rows.

    Args:
        readers: To how many.
        stripe: Rows at a time.
    """

    def __init__(self, readers: int, stripe: int) -> None:
        self.readers = readers
        self.stripe = stripe
        self._held: list[Cut] = []  # rows of a round that is not complete
        self._held_rows = 0

    def take(self, item: Cut) -> Iterator[tuple[int, Cut]]:
        """Deal what has come; yield who gets which rows, in the order of the sequence."""
        self._held.append(item)
        self._held_rows += item.rows
        whole = self._held_rows - self._held_rows % (self.readers * self.stripe)
        if whole:
            yield from self._deal(self._released(whole), self.stripe)

    def end(self) -> Iterator[tuple[int, Cut]]:
        """Deal the rest of the sequence, in equal parts; what cannot be shared stays here."""
        if each := self._held_rows // self.readers:
            yield from self._deal(self._released(each * self.readers), each)

    def rest(self) -> list[Cut]:
        """Return what could not be shared."""
        return self._released(self._held_rows)

    def _deal(self, items: Iterable[Cut], stripe: int) -> Iterator[tuple[int, Cut]]:
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

    def _released(self, rows: int) -> list[Cut]:
        """Return the first rows that are held, which are not held any more."""
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


def remaining(items: Iterable[Cut], dealt: ShardUsage) -> Iterator[Cut]:
    """Yield the rows of a sequence that none of its readers has used, in order."""
    dealer: StripedSharder[Cut] = StripedSharder(len(dealt.used), dealt.stripe)
    got = [0] * dealer.readers  # rows of each reader that have gone by
    for reader, item in chain(chain.from_iterable(map(dealer.take, items)), dealer.end()):
        begin = got[reader]
        got[reader] += item.rows
        for start, stop in dealt.used[reader].unused(begin, got[reader]):
            yield item.cut(start - begin, stop - begin)
    yield from dealer.rest()
