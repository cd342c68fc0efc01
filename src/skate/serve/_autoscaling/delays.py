"""A wish for more or fewer replicas comes true when it has lasted."""

from __future__ import annotations

from typing import NamedTuple

# Sums of floats: a delay that is over by less than this is over.
_TOLERANCE = 1e-6


class Delays(NamedTuple):
    """How long a wish must last, in seconds."""

    up: float
    down: float
    to_zero: float


class DelayTracker:
    """Remembers since when there have been too few or too many replicas."""

    def __init__(self) -> None:
        self._direction = 0
        self._since = 0.0
        self._delay = 0.0

    def update(self, desired: int, target: int, final_step: int, delays: Delays, now: float) -> int:
        """Return the number of replicas that there should be from now on.

        Args:
            wanted: What the load asks for.
            target: What there should be so far.
            last: The number that goes at once and for good on the way to none: 1, or a gang.
            delays: How long a wish must last.
            now: The time.
        """
        if desired == 0 and target > final_step:
            desired = final_step  # the way to none leads over the last one, which has a delay of its own
        if desired == target:
            self.reset()
            return target
        direction = 1 if desired > target else -1
        if direction != self._direction:
            self._direction, self._since = direction, now
        self._delay = delays.up if direction > 0 else delays.to_zero if desired == 0 else delays.down
        if now - self._since + _TOLERANCE < self._delay:
            return target
        self.reset()
        return desired

    def reset(self) -> None:
        """Forget what was wished for."""
        self._direction = 0

    @property
    def expires_at(self) -> float | None:
        """When the wish comes true if it lasts, or None without one."""
        return self._since + self._delay if self._direction else None

    @property
    def direction(self) -> int:
        """1 while more replicas are wanted, -1 while fewer are, 0 otherwise."""
        return self._direction
