"""Log a message once, or once per minute, however often its line runs."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

__all__ = ["Suspect", "disable_log_once_globally", "enable_periodic_logging", "log_once", "reset_log_once"]

PERIOD_SECONDS: Final = 60.0

_last_logged: dict[str, float] = {}
_disabled = False
_periodic = False


class Suspect(NamedTuple):
    """A line of code whose memory grows from one measurement to the next, as reported by a memory leak search.

    Attributes:
        traceback: Location of the allocation.
        memory_increase: Increase in bytes.
        slope: Bytes per measurement, from a linear fit.
        rvalue: Correlation coefficient of the fit.
        hist: The measurements.
    """

    traceback: Any
    memory_increase: float
    slope: float
    rvalue: float
    hist: list[float]


def log_once(key: str) -> bool:
    """Return whether the caller should log now: True for the first call with `key`.

    After `enable_periodic_logging`, it is True once per minute; after `disable_log_once_globally`, never.

    Args:
        key: Identifier of the message.

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
    """Make `log_once` return False in this process from now on."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """Make `log_once` return True once per minute in this process."""
    global _periodic
    _periodic = True


def reset_log_once(key: str | None = None) -> None:
    """Reset `log_once` for `key`, or for every key if it is None."""
    if key is None:
        _last_logged.clear()
    else:
        _last_logged.pop(key, None)
