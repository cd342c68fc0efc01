"""How far a sender may be ahead of a reader."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["WINDOW_SIZE", "Window"]

WINDOW_SIZE = 32
"""How many parts of a stream may be under way before the reader has taken the first."""


class Window:
    """Counts parts: `take` waits when too many are under way, until the reader grants more."""

    __slots__ = ("_available", "_waiting")

    def __init__(self, available: int = WINDOW_SIZE) -> None:
        self._available = available
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Take the available for one part, waiting for it if there is none."""
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
        """Make available for further parts."""
        self._available += count
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
