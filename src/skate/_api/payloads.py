"""Values as bytes, for libraries that use their own sockets."""

from __future__ import annotations

import pickle
from typing import Any

from skate._base.serialization import PLAIN, context, loads, serialize
from skate._engine.common.values import INLINE_LIMIT

__all__ = ["LARGEST", "declare_importable", "pack", "pack_call", "unpack"]

LARGEST = INLINE_LIMIT
"""The smallest size in bytes of values that belong in shared memory, where they are written once."""

_importable: set[type] = set()


def declare_importable(kind: type) -> None:
    """Have `pack_call` pickle instances of a class without cloudpickle, which takes several times as long.

    Every process must be able to import the class. Subclasses are not included.
    """
    _importable.add(kind)


def pack(value: Any) -> bytes | None:
    """Return a value as bytes; None for a value that has to be sent through tasks and actors instead.

    These are large values and values that contain references, which only the engine can track.

    Raises:
        TypeError: If a part of the value cannot be pickled.
    """
    if type(value) in PLAIN:
        data = pickle.dumps(value, 5)
        return data if len(data) < LARGEST else None
    made = serialize(value)
    return None if made.references or made.size >= LARGEST else made.to_bytes()


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    """Return the arguments of a call as bytes, as `pack` does.

    Positional arguments that are plain, or whose class has been declared with `declare_importable`, take a short cut.
    """
    if not kwargs:
        if not args:
            return _NOTHING
        is_plain = True
        for arg in args:
            if type(arg) not in PLAIN:
                is_plain = False
                if type(arg) not in _importable:
                    break
        else:
            if not is_plain:
                return _pack_importable(args)
            data = pickle.dumps((args, kwargs), 5)
            return data if len(data) < LARGEST else None
    return pack((args, kwargs))


def _pack_importable(args: tuple[Any, ...]) -> bytes | None:
    previous = context.collected
    references: list[Any] = []
    context.collected = references
    try:
        data = pickle.dumps((args, {}), 5)
    except (
        pickle.PicklingError,
        AttributeError,
        TypeError,
    ):  # one of them contains, say, a lambda expression
        return pack((args, {}))
    finally:
        context.collected = previous
    return None if references or len(data) >= LARGEST else data


_NOTHING = pickle.dumps(((), {}), 5)


def unpack(data: bytes) -> Any:
    """Return the value that `pack` was given. Call this only with bytes from a process of this session."""
    return loads(data)
