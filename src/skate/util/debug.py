"""Log a message once, or once a minute, however often its line runs."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

__all__ = ["Suspect", "disable_log_once_globally", "enable_periodic_logging", "log_once", "reset_log_once"]

PERIOD_SECONDS: Final = 60.0

_last_logged: dict[str, float] = {}
_disabled = False
_periodic = False


class Suspect(NamedTuple):
    """A line of code whose memory grows from one measurement to the next, as a search for memory leaks finds it.

    Attributes:
        traceback: Where the memory was allocated.
        memory_increase: By how many bytes it grew.
        slope: Bytes per measurement, of the line fitted to the measurements.
        rvalue: The correlation coefficient of that line.
        hist: The measurements.
    """

    traceback: Any
    memory_increase: float
    slope: float
    rvalue: float
    hist: list[float]


def log_once(key: str) -> bool:
    """Return whether the caller should log now: True the first time that `key` is asked about.

    After `enable_periodic_logging` it is True again once a minute; after `disable_log_once_globally` never.

    Args:
        key: Anything that stands for the message.

    Example:
        >>> [log_once("a key of this example") for _ in range(3)]
        [True, False, False]
    """
    if _disabled:
        return False
    now = time.monotonic()
    last = _last_logged.get(key)
    if last is not None and not (_periodic and now - last >= PERIOD_SECONDS):
        return False
    _last_logged[key] = now
    return True


def disable_log_once_globally() -> None:
    """Make `log_once` answer False in this process from now on."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """Make `log_once` answer True once a minute instead of once in this process."""
    global _periodic
    _periodic = True


def reset_log_once(key: str | None = None) -> None:
    """Forget that `key`, or with None every key, has been asked about."""
    if key is None:
        _last_logged.clear()
    else:
        _last_logged.pop(key, None)
