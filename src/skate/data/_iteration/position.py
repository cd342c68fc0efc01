"""The position of a reader in its dataset: the pass and the used rows. Other readers can continue from it."""

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
    """The position at which the readers of a dataset start.

    Attributes:
        number: The number of the first pass.
        seed: The seed of the random operations of each pass.
        used: What earlier readers have used of the first pass, the earliest first.
    """

    number: int
    seed: int
    used: tuple[ShardUsage, ...] = ()

    @classmethod
    def new(cls) -> StartPosition:
        """Return the start of a dataset, with a new seed."""
        return cls(0, random.SystemRandom().getrandbits(63))

    def used_of(self, number: int) -> tuple[ShardUsage, ...]:
        """Return what earlier readers have used of a pass."""
        return self.used if number == self.number else ()


class PositionTracker:
    """Tracks the position of one reader.

    Attributes:
        start: The start position.
        number: The number of the current pass, or of the next pass.
        stripe: Number of rows of a stripe, known after the first rows.
        rows: Number of rows used in all passes.
    """

    def __init__(self, start: StartPosition) -> None:
        self.rows = 0
        self.start = start
        self.stripe = 1
        self.number = start.number
        self._tally: UsedRowsTally | None = None  # of the current pass

    def follow(self, values: Iterator[tuple[int | Numbers, T]]) -> Iterator[T]:
        """Yield values, and count the rows of each as used."""
        if self._tally is not None:  # a pass starts while an earlier one is still open
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
        """Return the position as a JSON value."""
        used = None if self._tally is None else self._tally.used().as_json()
        earlier = [_to_json(each) for each in self.start.used_of(self.number)]
        # Checkpoints of training store these keys.
        return {
            "pass": self.number,
            "seed": self.start.seed,
            "dealt": earlier,
            "stripe": self.stripe,
            "used": used,
        }


def merge_positions(positions: Sequence[dict[str, Any] | None]) -> StartPosition | None:
    """Return the start position of readers that continue after readers at these positions, by rank.

    A reader with an unknown position is assumed to be at the first known position, because readers of equal shards
    advance together.
    """
    known = next((each for each in positions if each is not None), None)
    if known is None:
        return None
    complete = [known if each is None else each for each in positions]
    behind = min(each["pass"] for each in complete)
    first = next(each for each in complete if each["pass"] == behind)
    used = tuple(_used_rows(each, behind) for each in complete)
    earlier = tuple(map(_from_json, first["dealt"]))
    # A reader that has used nothing may not know the stripe of this pass yet.
    stripes = [each["stripe"] for each in complete if each["pass"] == behind and each["used"]]
    if stripes or any(each.first for each in used):
        earlier = (*earlier, ShardUsage(stripes[0] if stripes else first["stripe"], used))
    return StartPosition(behind, first["seed"], earlier)


def _used_rows(position: dict[str, Any], number: int) -> UsedRows:
    if position["pass"] > number:
        return UsedRows.all_rows()
    return UsedRows() if position["used"] is None else UsedRows.from_json(position["used"])


def _to_json(usage: ShardUsage) -> dict[str, Any]:
    return {"stripe": usage.stripe, "used": [each.as_json() for each in usage.used]}


def _from_json(value: dict[str, Any]) -> ShardUsage:
    return ShardUsage(value["stripe"], tuple(map(UsedRows.from_json, value["used"])))
