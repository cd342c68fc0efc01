"""Actors and small functions that the contract tests synchronise with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import skate

# How long a test waits for what must happen; never for what must not.
EVENT_TIMEOUT_S = 30.0


@skate.remote(num_cpus=0)
class Signal:
    """An event that tasks wait for and anyone sends."""

    def __init__(self) -> None:
        self._sent = asyncio.Event()
        self._waiting: list[Any] = []
        self._changed = asyncio.Condition()

    async def send(self) -> None:
        self._sent.set()

    async def wait(self, name: Any = None) -> None:
        async with self._changed:
            self._waiting.append(name)
            self._changed.notify_all()
        await self._sent.wait()

    async def wait_for_waiters(self, count: int) -> None:
        """Return once `count` callers have come to wait."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._waiting) >= count)

    async def waiting(self) -> list[Any]:
        """Return the names that callers who came to wait have given."""
        return self._waiting

    async def has_been_sent(self) -> bool:
        return self._sent.is_set()


@skate.remote(num_cpus=0)
class Log:
    """A list that anyone appends to, in the order in which the calls arrive."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def append(self, item: Any) -> int:
        self._items.append(item)
        return len(self._items)

    def items(self) -> list[Any]:
        return self._items


@skate.remote(num_cpus=0)
class Counter:
    """A number that counts up."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def increment(self, by: int = 1) -> int:
        self.value += by
        return self.value

    def read(self) -> int:
        return self.value


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Ask until `condition()` is true and return what it gave; for facts that nothing announces."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"still not true after {EVENT_TIMEOUT_S:g} s: {what or condition!r}")
        time.sleep(pause)
        pause = min(pause * 2, 0.25)
