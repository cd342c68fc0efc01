"""Reducers that users registered for types which cannot be pickled as they are.

The core's pickler looks here for every object that is not a plain builtin. The table belongs to this process: the
sender of a value must have registered its type, while the receiver needs nothing, because the deserializer is part of
the pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["REDUCERS", "Reducer", "deregister", "follow", "register"]

Reducer = Callable[[Any], tuple[Any, ...]]

REDUCERS: dict[type, Reducer] = {}
"""Exact type -> function giving what ``__reduce__`` would. Subclasses are not covered."""

_Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]
_pairs: dict[type, _Pair] = {}
_followers: list[Callable[[type, _Pair | None], None]] = []


def follow(follower: Callable[[type, _Pair | None], None]) -> Callable[[], None]:
    """Report registrations to an engine with its own pickler: the current ones, and all later ones.

    Args:
        follower: Called with a class and its serializer and deserializer, or None when they are removed.

    Returns:
        A function that ends the reports.
    """
    for cls, pair in _pairs.items():
        follower(cls, pair)
    _followers.append(follower)
    return lambda: _followers.remove(follower)


def register(
    cls: type,
    *,
    serializer: Callable[[Any], Any],
    deserializer: Callable[[Any], Any],
) -> None:
    """Pickle instances of `cls` as ``deserializer(serializer(obj))`` in this process.

    Registering a type again replaces its earlier reducer.

    Args:
        cls: The exact class; its subclasses are pickled as before.
        serializer: Turns an instance into something that pickles.
        deserializer: Turns that back into an instance, wherever the value is read.

    Raises:
        TypeError: If `cls` is not a class, or either function is not callable.
    """
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a class, got {cls!r}; pass type(obj), not the object itself.")
    for role, function in (("serializer", serializer), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(f"{role} for {cls.__qualname__} must be callable, got {function!r}.")

    def reduce(obj: Any) -> tuple[Any, ...]:
        return deserializer, (serializer(obj),)

    REDUCERS[cls] = reduce
    _pairs[cls] = serializer, deserializer
    for follower in _followers:
        follower(cls, _pairs[cls])


def deregister(cls: type) -> None:
    """Remove the reducer of `cls`, if it has one."""
    REDUCERS.pop(cls, None)
    if _pairs.pop(cls, None) is not None:
        for follower in _followers:
            follower(cls, None)
