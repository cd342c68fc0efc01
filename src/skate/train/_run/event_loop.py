"""The controller's event loop: waits for messages of the workers and for every other event source."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import skate


class EventSource(Protocol):
    """A component that the controller serves while the workers train."""

    @property
    def refs(self) -> Sequence[Any]:
        """The object references that it waits for."""

    @property
    def wake_at(self) -> float | None:
        """When to poll it at the latest, on the monotonic clock; None if only its references matter."""

    def on_ready(self, ref: Any) -> None:
        """Handle one of its references, which is ready."""

    def poll(self) -> None:
        """Do the work that is due, if any."""


def run_once(
    sources: Sequence[EventSource], streams: Iterable[Any] = (), until: float | None = None
) -> list[Any]:
    """Wait for the next event, and let the event source that owns it handle it.

    Args:
        sources: The event sources, each of which is polled first.
        streams: Streams of messages.
        until: When to stop waiting, on the monotonic clock.

    Returns:
        The streams that have a message.
    """
    for source in sources:
        source.poll()
    owners = {ref: source for source in sources for ref in source.refs}
    awaited = [*owners, *streams]  # if several are ready, `wait` returns the first
    times = [each for each in (until, *(source.wake_at for source in sources)) if each is not None]
    timeout = max(0.0, min(times) - time.monotonic()) if times else None
    if awaited:
        ready, _ = skate.wait(awaited, num_returns=1, timeout=timeout)
    else:
        ready = []
        time.sleep(timeout or 0.0)  # an event source requested this time
    for each in ready:
        if each in owners:
            owners[each].on_ready(each)
    return [each for each in ready if each not in owners]
