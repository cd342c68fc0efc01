"""Where workers stand in their datasets: said with each report, kept with the checkpoint, and gone on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Positions = dict[str, Any]  # of one worker, by the name of the dataset


def now(shards: Mapping[str, Any]) -> Positions | None:
    """Return where a worker stands in each of its datasets; None if that is not followed."""
    trackers = {name: getattr(shard, "_tracker", None) for name, shard in shards.items()}
    return {name: each.position() for name, each in trackers.items() if each is not None} or None


def rows(shards: Mapping[str, Any]) -> int | None:
    """Return how many rows of its datasets a worker has read; None if that is not followed."""
    trackers = [getattr(shard, "_tracker", None) for shard in shards.values()]
    return sum(each.rows for each in trackers if each is not None) if any(trackers) else None


def go_on(shards: Sequence[Mapping[str, Any]], saved: Sequence[Positions | None]) -> None:
    """Let workers go on where others stood: no row is used twice, and none is left out.

    Args:
        shards: Of each worker, its part of each dataset.
        saved: Where the workers of the checkpoint stood, by rank; there may have been more of them, or fewer. Empty if
            there is nothing to go on from.
    """
    for name in shards[0] if shards else ():
        stood = [None if each is None else each.get(name) for each in saved]
        _begin([shard[name] for shard in shards], stood)


def _begin(parts: Sequence[Any], stood: Sequence[Any]) -> None:
    from skate.data._iteration.position import StartPosition, merge_positions

    kinds = {getattr(part, "_resumable", None) for part in parts}
    if kinds == {"together"}:
        start = merge_positions(stood) or StartPosition.new()
        for part in parts:
            part._start_at(start)
    elif kinds == {"alone"}:
        for rank, part in enumerate(parts):
            own = stood[rank : rank + 1] if rank < len(stood) and stood[rank] is not None else stood
            part._start_at(merge_positions(own[:1]) or merge_positions(stood) or StartPosition.new())
