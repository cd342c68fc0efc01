"""Values as bytes, for libraries that have sockets of their own."""

from __future__ import annotations

import pickle
from typing import Any

from skate._base.serialization import PLAIN, loads, serialize
from skate._engine.common.values import INLINE_LIMIT

__all__ = ["LARGEST", "pack", "pack_call", "unpack"]

LARGEST = INLINE_LIMIT
"""From this size on a value is better off in shared memory, where it is written once."""


def pack(value: Any) -> bytes | None:
    """Return a value as bytes; None for what has to travel through tasks and actors instead.

    That are values that hold references, since only the engine knows who needs them, and large ones.

    Raises:
        TypeError: If a part of the value cannot be pickled.
    """
    if type(value) in PLAIN:
        data = pickle.dumps(value, 5)
        return data if len(data) < LARGEST else None
    made = serialize(value)
    return None if made.references or made.size >= LARGEST else made.to_bytes()


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    """Do what `pack` does, for the arguments of a call; a few plain ones take a short cut."""
    if not kwargs:
        if not args:
            return _NOTHING
        for arg in args:
            if type(arg) not in PLAIN:
                break
        else:
            data = pickle.dumps((args, kwargs), 5)
            return data if len(data) < LARGEST else None
    return pack((args, kwargs))


_NOTHING = pickle.dumps(((), {}), 5)


def unpack(data: bytes) -> Any:
    """Return the value that `pack` was given. Only for bytes of a process of this session."""
    return loads(data)
