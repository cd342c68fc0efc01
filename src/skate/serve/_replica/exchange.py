"""Values that travel through the object store instead of over a link: large ones, and those that hold references."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Exchange"]

_Given = tuple[tuple[Any, ...], dict[str, Any]]


class Exchange:
    """Brings together calls and the arguments delivered for them, and keeps answers until they are collected.

    Everything is known under the name of the caller's link and the number of its call. On the replica's loop only, but
    for `collect`.
    """

    def __init__(self) -> None:
        self._delivered: dict[tuple[str, int], asyncio.Future[_Given]] = {}
        self._kept: dict[tuple[str, int, int], Any] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def deliver(self, caller: str, id: int, given: _Given) -> None:
        """Take the arguments of a call."""
        self._expected(caller, id).set_result(given)

    async def receive(self, caller: str, id: int) -> _Given:
        """Wait for the arguments of a call."""
        try:
            return await self._expected(caller, id)
        finally:
            self._delivered.pop((caller, id), None)

    def keep(self, caller: str, id: int, number: int, value: Any) -> None:
        """Keep an answer until it is collected."""
        self._kept[caller, id, number] = value
        self._empty.clear()

    def collect(self, caller: str, id: int, number: int) -> Any:
        """Return an answer, once. Any thread may call it: a loop that is blocked must not hold back what is done.

        `note_collected` has to be called on the loop afterwards.
        """
        return self._kept.pop((caller, id, number))

    def note_collected(self) -> None:
        """Wake those who wait until every answer has been collected, if so."""
        if not self._kept:
            self._empty.set()

    async def collected(self) -> None:
        """Wait until every answer has been collected."""
        await self._empty.wait()

    def forget(self, caller: str) -> None:
        """Drop what a caller that is gone left behind."""
        for key in [key for key in self._delivered if key[0] == caller]:
            self._delivered.pop(key).cancel()
        for kept in list(self._kept):  # a copy: another thread may collect one meanwhile
            if kept[0] == caller:
                self._kept.pop(kept, None)
        self.note_collected()

    def _expected(self, caller: str, id: int) -> asyncio.Future[_Given]:
        future = self._delivered.get((caller, id))
        if future is None:
            future = self._delivered[caller, id] = asyncio.get_running_loop().create_future()
        return future
