"""Recorded random numbers: a failing history can be replayed, and shortened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

Tape = list[list[int]]


class Choices:
    """Draws small numbers, one list of them to a step.

    A new tape is drawn from a seed. A given tape is played back: a number too large for its place is
    taken modulo, a missing one is 0, so that any tape, however mangled, tells some story. 0 always
    means the plainest choice.
    """

    def __init__(self, seed: int = 0, tape: Tape | None = None) -> None:
        self.tape: Tape = [] if tape is None else tape
        self._draw = random.Random(seed).random
        self._replaying = tape is not None
        self.calm = False  # whether every choice is the plainest one, off the tape
        self._step = -1
        self._numbers: list[int] = []
        self._index = 0

    def next_step(self) -> bool:
        """Go to the next step; return False at the end of a tape that is played back."""
        self._step += 1
        self._index = 0
        if self._replaying:
            if self._step >= len(self.tape):
                return False
            self._numbers = self.tape[self._step]
        else:
            self._numbers = []
            self.tape.append(self._numbers)
        return True

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1."""
        if self.calm:
            return 0
        if self._replaying:
            index = self._index
            self._index = index + 1
            return self._numbers[index] % limit if index < len(self._numbers) else 0
        number = int(self._draw() * limit)
        self._numbers.append(number)
        return number

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of 100 cases."""
        return self.below(100) >= 100 - percent

    def pick(self, options: Sequence[T]) -> T:
        """Return one of `options`."""
        return options[self.below(len(options))] if len(options) > 1 else options[0]

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Return up to `most` different ones of `options`."""
        if not options:
            return []
        found: list[T] = []
        for _ in range(self.below(most + 1)):
            option = self.pick(options)
            if option not in found:
                found.append(option)
        return found
