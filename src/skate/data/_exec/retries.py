"""Further calls of user-defined functions after errors that the settings of the dataset name."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from skate.data.context import DataContext

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 32.0
_UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Retries:
    """The errors of a user-defined function after which it is called again.

    Attributes:
        patterns: Parts of messages, or regular expressions that they match; True for all errors.
        limit: Maximum number of further calls after these errors; -1 for any number.
        types: Types of errors after which any number of calls follows.
    """

    patterns: bool | tuple[str, ...] = ()
    limit: int = 0
    types: tuple[type[BaseException], ...] = ()

    @classmethod
    def current(cls, *, of_class: bool) -> Retries | None:
        """Return what the current settings retry; None for nothing.

        Args:
            of_class: Whether the function is a class, whose instances live in worker actors.
        """
        context = DataContext.get_current()
        named = context.retried_map_errors if context.max_map_retries else False
        types = context.actor_task_retry_on_errors if of_class else False
        if not named and not types:
            return None
        return cls(
            named if isinstance(named, bool) else tuple(named),
            context.max_map_retries,
            ((Exception,) if types else ()) if isinstance(types, bool) else tuple(types),
        )

    @classmethod
    def of_constructors(cls) -> Retries | None:
        """Return how often the current settings construct a class again after an error; None for never."""
        context = DataContext.get_current()
        if not context.actor_init_retry_on_errors or not context.actor_init_max_retries:
            return None
        return cls(True, context.actor_init_max_retries)

    def call(self, action: Callable[[], T]) -> T:
        """Call a function until it succeeds, or raises an error that is not retried."""
        attempt = 0
        while True:
            try:
                return action()
            except Exception as error:
                attempt += 1
                if not self._covers(error, attempt):
                    raise
                time.sleep(_pause(error, attempt))

    async def call_async(self, action: Callable[[], Awaitable[T]]) -> T:
        """Call an asynchronous function until it succeeds, or raises an error that is not retried."""
        import asyncio  # the program has imported it

        attempt = 0
        while True:
            try:
                return await action()
            except Exception as error:
                attempt += 1
                if not self._covers(error, attempt):
                    raise
                await asyncio.sleep(_pause(error, attempt))

    def _covers(self, error: Exception, attempt: int) -> bool:
        if isinstance(error, self.types):
            return True
        if attempt > self.limit and self.limit != _UNLIMITED:
            return False
        if isinstance(self.patterns, bool):
            return self.patterns
        text = f"{type(error).__name__}: {error}"
        return any(pattern in text or _matches(pattern, text) for pattern in self.patterns)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # plain text with brackets, for example
        return False


def _pause(error: Exception, attempt: int) -> float:
    """Return the seconds before the next call, and log them."""
    # Jitter keeps tasks that failed together from calling a service together.
    pause = min(_FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 30), _MAX_PAUSE_S) * random.uniform(0.5, 1.5)
    _logger.warning("A user-defined function failed: %r. It is called again in %.1f s", error, pause)
    return pause
