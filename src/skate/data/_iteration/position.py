"""Where a reader stands in its dataset, so that another can go on from there: which pass, and which rows of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from skate.data._iteration.row_ranges import Numbers, UsedRows, UsedRowsTally
from skate.data._iteration.sharding import ShardUsage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where the readers of a dataset begin.

    Attributes:
        number: Of the pass.
        seed: Decides the order of each pass, where it is random.
        dealt: What readers before have used of the pass, the earliest first.
    """

    number: int
    seed: int
    dealt: tuple[ShardUsage, ...] = ()

    @classmethod
    def anew(cls) -> StartPosition:
        """Return the beginning, for an order that nobody has seen."""
        return cls(0, random.SystemRandom().getrandbits(63))

    def of(self, number: int) -> tuple[ShardUsage, ...]:
        """Return what has been used already of a pass."""
        return self.dealt if number == self.number else ()


class PositionTracker:
    """Follows one reader through its passes.

    Attributes:
        start: Where it began.
        number: Of the pass that is under way, or else of the next.
        stripe: Rows that it gets at a time, once it has got some.
        rows: How many rows it has used, in all passes since it began.
    """

    def __init__(self, start: StartPosition) -> None:
        self.rows = 0
        self.start = start
        self.stripe = 1
        self.number = start.number
        self._tally: UsedRowsTally | None = None  # of the pass that is under way

    def follow(self, values: Iterator[tuple[int | Numbers, T]]) -> Iterator[T]:
        """Yield values, each of which is made of some rows, and count these as used."""
        if self._tally is not None:  # somebody begins anew while an earlier pass has not been given up
            self.number += 1
        tally = self._tally = UsedRowsTally()
        try:
            for rows, value in values:
                tally.add(rows)
                self.rows += rows if isinstance(rows, int) else len(rows)
                yield value
        finally:
            if self._tally is tally:
                self.number, self._tally = self.number + 1, None
            close = getattr(values, "close", None)
            if close is not None:
                close()

    def position(self) -> dict[str, Any]:
        """Return where the reader stands, as JSON can hold it."""
        used = None if self._tally is None else self._tally.used().as_json()
        dealt = [_to_json(each) for each in self.start.of(self.number)]
        return {
            "pass": self.number,
            "seed": self.start.seed,
            "dealt": dealt,
            "stripe": self.stripe,
            "used": used,
        }


def merge_positions(positions: Sequence[dict[str, Any] | None]) -> StartPosition | None:
    """Return where readers begin who go on after those that stood at these positions, by rank.

    Of a reader whose position is unknown, the same is taken to be so as of the first that is known: readers of equal
    parts use their rows side by side.
    """
    known = next((each for each in positions if each is not None), None)
    if known is None:
        return None
    stood = [known if each is None else each for each in positions]
    behind = min(each["pass"] for each in stood)
    first = next(each for each in stood if each["pass"] == behind)
    used = tuple(_used(each, behind) for each in stood)
    dealt = tuple(map(_from_json, first["dealt"]))
    # One that has not used anything may not know yet how the rows of this pass are dealt.
    stripes = [each["stripe"] for each in stood if each["pass"] == behind and each["used"]]
    if stripes or any(each.first for each in used):
        dealt = (*dealt, ShardUsage(stripes[0] if stripes else first["stripe"], used))
    return StartPosition(behind, first["seed"], dealt)


def _used(position: dict[str, Any], number: int) -> UsedRows:
    if position["pass"] > number:
        return UsedRows.everything()
    return UsedRows() if position["used"] is None else UsedRows.from_json(position["used"])


def _to_json(dealt: ShardUsage) -> dict[str, Any]:
    return {"stripe": dealt.stripe, "used": [each.as_json() for each in dealt.used]}


def _from_json(value: dict[str, Any]) -> ShardUsage:
    return ShardUsage(value["stripe"], tuple(map(UsedRows.from_json, value["used"])))
