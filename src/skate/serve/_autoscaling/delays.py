"""Delays of scaling decisions: a target changes after it has been desired for a while."""

from __future__ import annotations

from typing import NamedTuple

# For rounding errors in sums of floats.
_TOLERANCE = 1e-6


class Delays(NamedTuple):
    """How long a change must be desired before it takes effect, in seconds."""

    up: float
    down: float
    to_zero: float


class DelayTracker:
    """Tracks since when more or fewer replicas have been desired."""

    def __init__(self) -> None:
        self._direction = 0
        self._since = 0.0
        self._delay = 0.0

    def update(self, desired: int, target: int, final_step: int, delays: Delays, now: float) -> int:
        """Return the new target number of replicas.

        Args:
            desired: The number of replicas that the load requires.
            target: The target so far.
            final_step: The size of the last step to zero: 1, or a gang.
            delays: How long a change must be desired.
            now: The time.
        """
        if desired == 0 and target > final_step:
            desired = final_step  # the last step to zero has a separate delay
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
        """Forget the pending change."""
        self._direction = 0

    @property
    def expires_at(self) -> float | None:
        """When the pending change takes effect, or None if there is none."""
        return self._since + self._delay if self._direction else None

    @property
    def direction(self) -> int:
        """1 while more replicas are desired, -1 while fewer are, 0 otherwise."""
        return self._direction
