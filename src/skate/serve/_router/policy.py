"""The built-in routing policy: which replica receives the next request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["Candidate", "choose"]


class Candidate(Protocol):
    """The attributes of a replica that the policy uses."""

    @property
    def has_room(self) -> bool: ...
    @property
    def queue_len(self) -> int: ...
    @property
    def models(self) -> frozenset[str]: ...


C = TypeVar("C", bound=Candidate)


def choose(candidates: Sequence[C], model: str, draw: Callable[[int], int]) -> C | None:
    """Return the replica for a request, or None if all of them are full.

    The policy takes the less busy of two random replicas. This is nearly as good as comparing all of them and, unlike
    "always the least busy", does not send every caller to the same replica while load reports are in transit. A request
    for a model goes to a replica that has loaded it, if one has room, and otherwise to the replica with the fewest
    models.

    Args:
        candidates: The replicas.
        model: The id of the requested model, or "".
        draw: Returns a random number below its argument.
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
