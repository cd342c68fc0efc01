"""The collective operations of `skate.train.collective`, which are requests to the controller."""

from __future__ import annotations

from typing import TypeVar

from skate.train._reports.messages import BARRIER, BROADCAST
from skate.train._workers import sessions

__all__ = ["barrier", "broadcast_from_rank_zero"]

T = TypeVar("T")


def barrier() -> None:
    """Wait until all workers have called it."""
    sessions.current("barrier()").request(BARRIER)


def broadcast_from_rank_zero(data: T) -> T:
    """Return the argument of rank 0 on all workers.

    All workers must call it. It is meant for small values, which pass through the controller's process.
    """
    session = sessions.current("broadcast_from_rank_zero()")
    found: T = session.request(BROADCAST, data if session.ranks.world_rank == 0 else None)
    return found
