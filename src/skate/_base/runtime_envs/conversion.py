"""Conversion between dataclasses and plain values, for fields with structured settings."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any


def to_plain(value: Any) -> Any:
    """Return a dataclass instance as a dict, recursively; anything else unchanged."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def to_dataclass(cls: Any, value: Any) -> Any:
    """Build an instance of a dataclass, and of nested ones, from plain values.

    Raises:
        TypeError: ``cls`` is not a dataclass, or a field is missing or unknown.
    """
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"cannot make a {cls.__name__} of a {type(value).__name__}: {value!r}")
    if not dataclasses.is_dataclass(cls):
        return cls(**value)
    hints = typing.get_type_hints(cls)
    make: Any = cls
    return make(**{name: _convert(hints.get(name, Any), item) for name, item in value.items()})


def _convert(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple) and isinstance(value, (list, tuple)) and arguments:
        return origin(_convert(arguments[0], item) for item in value)
    if origin is dict and isinstance(value, Mapping) and len(arguments) == 2:
        return {key: _convert(arguments[1], item) for key, item in value.items()}
    for option in arguments or (hint,):
        if dataclasses.is_dataclass(option) and isinstance(value, Mapping):
            return to_dataclass(option, value)
    return value
