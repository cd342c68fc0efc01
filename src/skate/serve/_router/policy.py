"""Which replica gets the next request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["Candidate", "choose"]


class Candidate(Protocol):
    """What has to be known of a replica."""

    @property
    def has_room(self) -> bool: ...
    @property
    def queue_len(self) -> int: ...
    @property
    def models(self) -> frozenset[str]: ...


C = TypeVar("C", bound=Candidate)


def choose(candidates: Sequence[C], model: str, draw: Callable[[int], int]) -> C | None:
    """Return the replica for a request, or None if all of them are full.

    Of two replicas drawn at random the less busy one is taken: nearly as good as asking all of them, and unlike
    "force the least busy" it does not send everybody to the same one while the news of it is on its way. A request for
    a model goes to replicas that have it loaded, if one of them has room; otherwise to where the fewest are loaded.

    Args:
        candidates: The replicas.
        model: The id of the wanted model, or "".
        draw: Returns a random number below the one that it is call_args.
    """
    count = len(candidates)
    if model:
        return _choose_for_model(candidates, model)
    if count == 1:
        return candidates[0] if candidates[0].has_room else None
    if count == 0:
        return None
    at = draw(count)
    first = candidates[at]
    second = candidates[(at + 1 + draw(count - 1)) % count]
    if first.has_room and (not second.has_room or first.queue_len <= second.queue_len):
        return first
    if second.has_room:
        return second
    return min((each for each in candidates if each.has_room), key=lambda each: each.queue_len, default=None)


def _choose_for_model(candidates: Sequence[C], model: str) -> C | None:
    free = [each for each in candidates if each.has_room]
    loaded = [each for each in free if model in each.models]
    if loaded:
        return min(loaded, key=lambda each: each.queue_len)
    return min(free, key=lambda each: (len(each.models), each.queue_len), default=None)
