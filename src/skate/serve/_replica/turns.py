"""Requests run side by side; a change of the replica's configuration runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Turns"]


class Turns:
    """Lets any number of requests run, or one change: what came before it ends first, what comes after it waits."""

    __slots__ = ("_active", "_change", "_quiet")

    def __init__(self) -> None:
        self._active = 0
        self._change: asyncio.Event | None = None  # set when the change under way is over
        self._quiet: asyncio.Event | None = None  # set when no request runs

    def begin_at_once(self) -> bool:
        """Begin a request if no change is under way; returns whether it has begun."""
        if self._change is not None:
            return False
        self._active += 1
        return True

    async def begin(self) -> None:
        """Begin a request, once no change is under way."""
        while self._change is not None:
            await self._change.wait()
        self._active += 1

    def end(self) -> None:
        """End a request that has begun."""
        self._active -= 1
        if self._quiet is not None and not self._active:
            self._quiet.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run a change while no request runs."""
        while self._change is not None:
            await self._change.wait()
        self._change = asyncio.Event()
        try:
            if self._active:
                self._quiet = asyncio.Event()
                await self._quiet.wait()
            yield
        finally:
            over, self._change, self._quiet = self._change, None, None
            over.set()
