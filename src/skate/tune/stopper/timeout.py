"""Stop the experiment after a time."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

from skate.tune.stopper.stopper import Stopper

__all__ = ["TimeoutStopper"]


class TimeoutStopper(Stopper):
    """Stop all trials after a time, which starts when the stopper is first called.

    The time between saving and restoring an experiment does not count.

    Args:
        timeout: The time, in seconds or as a `timedelta`.
        clock: A function that returns the time in seconds; by default `time.monotonic`.

    Raises:
        ValueError: `timeout` is neither a number nor a `timedelta`.
    """

    def __init__(
        self,
        timeout: float | datetime.timedelta,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ValueError(f"timeout must be a number of seconds or a timedelta, not {timeout!r}.")
        self._left = float(timeout)
        self._clock = clock
        self._checked_at: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False, because all trials stop together."""
        return False

    def stop_all(self) -> bool:
        """Return whether the time has elapsed."""
        # The default is looked up at each call, so that tests can replace the clock of the time module.
        now = time.monotonic() if self._clock is None else self._clock()
        if self._checked_at is not None:
            self._left -= now - self._checked_at
        self._checked_at = now
        return self._left <= 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked_at": None}
