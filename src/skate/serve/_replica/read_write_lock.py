"""Requests run side by side; a change of the replica's configuration runs write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["ReadWriteLock"]


class ReadWriteLock:
    """Lets any number of requests run, or one change: what came before it ends first, what comes after it waits."""

    __slots__ = ("_readers", "_readers_done", "_writer_done")

    def __init__(self) -> None:
        self._readers = 0
        self._writer_done: asyncio.Event | None = None  # set when the change under way is over
        self._readers_done: asyncio.Event | None = None  # set when no request runs

    def try_acquire_read(self) -> bool:
        """Begin a request if no change is under way; returns whether it has begun."""
        if self._writer_done is not None:
            return False
        self._readers += 1
        return True

    async def acquire_read(self) -> None:
        """Begin a request, once no change is under way."""
        while self._writer_done is not None:
            await self._writer_done.wait()
        self._readers += 1

    def release_read(self) -> None:
        """End a request that has begun."""
        self._readers -= 1
        if self._readers_done is not None and not self._readers:
            self._readers_done.set()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[None]:
        """Run a change while no request runs."""
        while self._writer_done is not None:
            await self._writer_done.wait()
        self._writer_done = asyncio.Event()
        try:
            if self._readers:
                self._readers_done = asyncio.Event()
                await self._readers_done.wait()
            yield
        finally:
            over, self._writer_done, self._readers_done = self._writer_done, None, None
            over.set()
