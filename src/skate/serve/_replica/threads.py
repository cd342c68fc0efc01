"""The threads that FastAPI and Starlette run functions in."""

from __future__ import annotations

import sys

__all__ = ["ThreadLimit"]


class ThreadLimit:
    """Lets as many functions run in anyio's threads as a replica has requests at a time. On the replica's loop.

    To ask anyio makes it load twenty more modules, which a replica that never uses such threads need not wait for: it
    is done when something is about to be run that may use them.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._is_set = False

    def change(self, count: int) -> None:
        """Let another number of functions run."""
        self._count = count
        self._is_set = self._is_set and self._set()

    def apply(self) -> None:
        """See that the limit holds, if anybody here has imported anyio."""
        if not self._is_set:
            self._is_set = self._set()

    def _set(self) -> bool:
        anyio = sys.modules.get("anyio.to_thread")
        if anyio is None:
            return False
        anyio.current_default_thread_limiter().total_tokens = self._count
        return True
