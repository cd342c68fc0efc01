"""Trying again what a network or a store failed at once."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from skate.data.context import DataContext

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)

_ATTEMPTS = 10
_MAX_PAUSE_S = 32.0


def call(
    action: Callable[[], Result],
    what: str,
    *,
    is_transient: Callable[[Exception], bool] | None = None,
    attempts: int = _ATTEMPTS,
    longest_pause: float = _MAX_PAUSE_S,
) -> Result:
    """Return what a call returns, and call again while it fails with an error that goes away by itself.

    Args:
        action: What to call; it must be harmless to call it twice.
        what: What it does, for the log.
        is_transient: Returns whether an error goes away by itself; if not given, those do that
            `DataContext.retried_io_errors` names.
        attempts: The number of calls after which the error is raised.
        longest_pause: The longest pause between two calls, in seconds.
    """
    is_transient = is_transient or _is_transient
    for attempt in range(1, attempts):
        try:
            return action()
        except Exception as error:
            if not is_transient(error):
                raise
            _pause(error, what, attempt, attempts, longest_pause)
    return action()


def iterate(items: Callable[[], Iterator[Result]], what: str) -> Iterator[Result]:
    """Yield what an iterator yields, and start it again behind what it has yielded while it fails like that."""
    done = 0
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            for number, item in enumerate(items()):
                if number >= done:
                    done += 1
                    yield item
            return
        except Exception as error:
            if attempt == _ATTEMPTS or not _is_transient(error):
                raise
            _pause(error, what, attempt, _ATTEMPTS, _MAX_PAUSE_S)


def _is_transient(error: Exception) -> bool:
    context = DataContext.get_current()
    known = (*context.retried_io_errors, *context.write_file_retry_on_errors)
    return any(part in str(error) for part in known)


def _pause(error: Exception, what: str, attempt: int, attempts: int, longest: float) -> None:
    # Chance keeps tasks that failed together from coming back together.
    pause = min(2 ** (attempt - 1) * 0.1, longest) * random.uniform(0.5, 1.5)
    _logger.warning("%s failed: %s. Attempt %d of %d in %.1f s", what, error, attempt + 1, attempts, pause)
    time.sleep(pause)
