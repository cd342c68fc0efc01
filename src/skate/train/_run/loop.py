"""The loop of whoever drives a run: waits for workers, and for whatever else is going on beside them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import skate


class Side(Protocol):
    """Something that goes on beside the training."""

    @property
    def refs(self) -> Sequence[Any]:
        """References that it waits for."""

    @property
    def due(self) -> float | None:
        """When it wants to look, on the monotonic clock; None if only its references matter."""

    def came(self, ref: Any) -> None:
        """Take one of the references, which is there."""

    def look(self) -> None:
        """Do what is due, if anything is."""


def turn(sides: Sequence[Side], streams: Iterable[Any] = (), until: float | None = None) -> list[Any]:
    """Wait until something has happened, and let each side deal with what is its.

    Args:
        sides: What goes on beside the training.
        streams: Streams of messages.
        until: When to stop waiting, on the monotonic clock.

    Returns:
        The streams that have something to say.
    """
    for side in sides:
        side.look()
    owners = {ref: side for side in sides for ref in side.refs}
    waited = [*owners, *streams]  # of what is there at the same time, the first is taken
    times = [each for each in (until, *(side.due for side in sides)) if each is not None]
    timeout = max(0.0, min(times) - time.monotonic()) if times else None
    if waited:
        ready, _ = skate.wait(waited, num_returns=1, timeout=timeout)
    else:
        ready = []
        time.sleep(timeout or 0.0)  # a side has asked for this time
    for each in ready:
        if each in owners:
            owners[each].came(each)
    return [each for each in ready if each not in owners]
