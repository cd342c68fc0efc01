"""The read-write lock between requests and reconfiguration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["ReadWriteLock"]


class ReadWriteLock:
    """A lock for any number of requests (readers) or one reconfiguration (writer).

    A writer waits for the readers before it, and readers after it wait for the writer.
    """

    __slots__ = ("_readers", "_readers_done", "_writer_done")

    def __init__(self) -> None:
        self._readers = 0
        self._writer_done: asyncio.Event | None = None  # set when the current writer is done
        self._readers_done: asyncio.Event | None = None  # set when no reader is left

    def try_acquire_read(self) -> bool:
        """Acquire the lock for a reader without waiting; return whether this succeeded."""
        if self._writer_done is not None:
            return False
        self._readers += 1
        return True

    async def acquire_read(self) -> None:
        """Acquire the lock for a reader."""
        while self._writer_done is not None:
            await self._writer_done.wait()
        self._readers += 1

    def release_read(self) -> None:
        """Release the lock of a reader."""
        self._readers -= 1
        if self._readers_done is not None and not self._readers:
            self._readers_done.set()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[None]:
        """Hold the lock for a writer."""
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
