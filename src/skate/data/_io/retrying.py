"""Retry operations that fail with transient errors of a network or a store."""

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
    """Call a function and return its result; retry while it fails with a transient error.

    Args:
        action: The function, which must be idempotent.
        what: Description of the operation, for the log.
        is_transient: Return whether an error is transient; by default, errors that
            `DataContext.retried_io_errors` names are.
        attempts: Number of calls before the error is raised.
        longest_pause: Maximum pause between two calls, in seconds.
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
    """Yield the items of an iterator; after a transient error, restart it and skip the items already yielded."""
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
    # Jitter keeps tasks that failed together from retrying together.
    pause = min(2 ** (attempt - 1) * 0.1, longest) * random.uniform(0.5, 1.5)
    _logger.warning("%s failed: %s. Attempt %d of %d in %.1f s", what, error, attempt + 1, attempts, pause)
    time.sleep(pause)
