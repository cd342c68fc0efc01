"""What the controller tells all processes of Serve: the newest value under each key, to everybody who asked for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from skate.serve._wire.frames import Frame, Subscribe, Update, acknowledgement_key
from skate.serve._wire.link import Link

__all__ = ["Board"]


class Board:
    """Keeps values and sends each to its subscribers, now and whenever it changes."""

    def __init__(self, heard: Callable[[Link, Update], None], left: Callable[[Link], None]) -> None:
        self._heard = heard
        self._left = left
        self._values: dict[str, bytes] = {}
        self._subscribers: dict[str, set[Link]] = defaultdict(set)
        self._seen: dict[tuple[str, Link], bytes] = {}
        self._moved = asyncio.Event()  # set when somebody confirmed or left; then replaced

    def post(self, key: str, value: bytes) -> None:
        """Set a value, and tell those who want to know."""
        if self._values.get(key) == value:
            return
        self._values[key] = value
        for link in self._subscribers[key]:
            link.send(Update(key, value))

    async def until_seen(self, key: str, expected: Callable[[], int] = lambda: 0) -> None:
        """Wait until everybody who is told of a key, which all have to confirm, acts on its newest value.

        Before that, a proxy might not know of an application that a program believes to run.

        Args:
            key: What is told.
            expected: Says how many there are to be told; some of them may have to connect first.
        """
        seen = acknowledgement_key(key)
        while len(self._subscribers[key]) < expected() or any(
            self._seen.get((seen, link)) != self._values.get(key) for link in self._subscribers[key]
        ):
            await self._moved.wait()

    def look_again(self) -> None:
        """Have those who wait until something is seen count again who has to see it."""
        self._tell_moved()

    def opened(self, link: Link) -> None:
        """Serve a process that has just connected."""
        forget = link.closed

        def closed(link: Link) -> None:
            if forget is not None:
                forget(link)
            for links in self._subscribers.values():
                links.discard(link)
            for key in [key for key in self._seen if key[1] is link]:
                del self._seen[key]
            self._tell_moved()
            self._left(link)

        link.receive, link.closed = self._receive, closed

    def _receive(self, link: Link, frame: Frame) -> None:
        if isinstance(frame, Subscribe):
            self._subscribers[frame.key].add(link)
            value = self._values.get(frame.key)
            if value is not None:
                link.send(Update(frame.key, value))
        elif isinstance(frame, Update):
            if frame.key.startswith(acknowledgement_key("")):
                self._seen[frame.key, link] = frame.value
                self._tell_moved()
            else:
                self._heard(link, frame)

    def _tell_moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
