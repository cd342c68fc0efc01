"""Flow control for streams."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["WINDOW_SIZE", "Window"]

WINDOW_SIZE = 32
"""The most parts of a stream in transit before the reader takes the first."""


class Window:
    """A flow-control window. `take` waits while the window is empty, until the reader grants more parts."""

    __slots__ = ("_available", "_waiting")

    def __init__(self, available: int = WINDOW_SIZE) -> None:
        self._available = available
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_take(self) -> bool:
        """Take the permission to send one part, if there is one. Return whether there was."""
        if self._available <= 0:
            return False
        self._available -= 1
        return True

    async def take(self) -> None:
        """Take the permission to send one part, waiting for it if necessary."""
        while self._available <= 0:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                if future in self._waiting:
                    self._waiting.remove(future)
        self._available -= 1

    def grant(self, count: int) -> None:
        """Allow further parts."""
        self._available += count
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
