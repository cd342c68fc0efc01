"""Positions of workers in their datasets: sent with each report, stored with checkpoints, and resumed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Positions = dict[str, Any]  # of one worker, by the name of the dataset


def current(shards: Mapping[str, Any]) -> Positions | None:
    """Return a worker's position in each of its datasets; None if none of them tracks it."""
    trackers = {name: getattr(shard, "_tracker", None) for name, shard in shards.items()}
    return {name: each.position() for name, each in trackers.items() if each is not None} or None


def rows_read(shards: Mapping[str, Any]) -> int | None:
    """Return how many rows of its datasets a worker has read; None if none of them counts."""
    trackers = [getattr(shard, "_tracker", None) for shard in shards.values()]
    return sum(each.rows for each in trackers if each is not None) if any(trackers) else None


def resume(shards: Sequence[Mapping[str, Any]], saved: Sequence[Positions | None]) -> None:
    """Let workers resume at stored positions, so that each row is used exactly once.

    Args:
        shards: The datasets of each worker.
        saved: The positions in the checkpoint, by rank. The number of workers may have been another one. Empty to start
            from the beginning.
    """
    for name in shards[0] if shards else ():
        stored = [None if each is None else each.get(name) for each in saved]
        _start([shard[name] for shard in shards], stored)


def _start(parts: Sequence[Any], stored: Sequence[Any]) -> None:
    from skate.data._iteration.position import StartPosition, merge_positions

    kinds = {getattr(part, "_resumable", None) for part in parts}
    if kinds == {"together"}:
        start = merge_positions(stored) or StartPosition.new()
        for part in parts:
            part._start_at(start)
    elif kinds == {"alone"}:
        for rank, part in enumerate(parts):
            own = stored[rank : rank + 1] if rank < len(stored) and stored[rank] is not None else stored
            part._start_at(merge_positions(own[:1]) or merge_positions(stored) or StartPosition.new())
