"""The collective operations of `skate.train.collective`: questions to whoever drives the run."""

from __future__ import annotations

from typing import TypeVar

from skate.train._reports.messages import BARRIER, BROADCAST
from skate.train._workers import sessions

__all__ = ["barrier", "broadcast_from_rank_zero"]

T = TypeVar("T")


def barrier() -> None:
    """Wait until all workers are here."""
    sessions.current("barrier()").ask(BARRIER)


def broadcast_from_rank_zero(data: T) -> T:
    """Return what the worker of rank 0 has given, on all workers.

    All workers call it. It is meant for small values: it goes through the process that drives the run.
    """
    session = sessions.current("broadcast_from_rank_zero()")
    found: T = session.ask(BROADCAST, data if session.place.world_rank == 0 else None)
    return found
