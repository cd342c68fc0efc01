"""Publish and subscribe: the controller sends the newest value of each topic to the processes that subscribe to it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from skate.serve._wire.frames import Frame, Subscribe, Update, acknowledgement_key
from skate.serve._wire.link import Link

__all__ = ["Publisher"]


class Publisher:
    """Stores the newest value of each topic and sends it to subscribers, on subscription and on each change.

    Args:
        on_message: Called with messages that are neither subscriptions nor acknowledgements.
        on_disconnect: Called when a process disconnects.
    """

    def __init__(
        self, on_message: Callable[[Link, Update], None], on_disconnect: Callable[[Link], None]
    ) -> None:
        self._on_message = on_message
        self._on_disconnect = on_disconnect
        self._values: dict[str, bytes] = {}
        self._subscribers: dict[str, set[Link]] = defaultdict(set)
        self._acknowledged: dict[tuple[str, Link], bytes] = {}
        # Set on each acknowledgement or disconnect, then replaced.
        self._acknowledgements_changed = asyncio.Event()

    def publish(self, topic: str, value: bytes) -> None:
        """Set the value of a topic and send it to all subscribers if it changed."""
        if self._values.get(topic) == value:
            return
        self._values[topic] = value
        for link in self._subscribers[topic]:
            link.send(Update(topic, value))

    async def wait_until_acknowledged(self, topic: str, expected: Callable[[], int] = lambda: 0) -> None:
        """Wait until all subscribers of a topic have acknowledged its newest value.

        Otherwise a proxy might not yet route to an application that a program believes to run.

        Args:
            topic: The topic. Its subscribers must acknowledge every value.
            expected: Returns the minimum number of subscribers; some of them may have to connect first.
        """
        ack_topic = acknowledgement_key(topic)
        while len(self._subscribers[topic]) < expected() or any(
            self._acknowledged.get((ack_topic, link)) != self._values.get(topic)
            for link in self._subscribers[topic]
        ):
            await self._acknowledgements_changed.wait()

    def recheck_acknowledgements(self) -> None:
        """Make waiters evaluate again which subscribers they wait for."""
        self._notify_waiters()

    def handle_connection(self, link: Link) -> None:
        """Serve a process that has just connected."""
        previous_closed = link.closed

        def closed(link: Link) -> None:
            if previous_closed is not None:
                previous_closed(link)
            for links in self._subscribers.values():
                links.discard(link)
            for key in [key for key in self._acknowledged if key[1] is link]:
                del self._acknowledged[key]
            self._notify_waiters()
            self._on_disconnect(link)

        link.receive, link.closed = self._receive, closed

    def _receive(self, link: Link, frame: Frame) -> None:
        if isinstance(frame, Subscribe):
            self._subscribers[frame.key].add(link)
            value = self._values.get(frame.key)
            if value is not None:
                link.send(Update(frame.key, value))
        elif isinstance(frame, Update):
            if frame.key.startswith(acknowledgement_key("")):
                self._acknowledged[frame.key, link] = frame.value
                self._notify_waiters()
            else:
                self._on_message(link, frame)

    def _notify_waiters(self) -> None:
        self._acknowledgements_changed.set()
        self._acknowledgements_changed = asyncio.Event()
