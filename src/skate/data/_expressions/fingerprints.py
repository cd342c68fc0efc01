"""Hashable keys that are equal for trees, and for values in them, of the same structure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable


class Fingerprint(tuple[Any, ...]):
    """A key that identifies the structure of a tree, with a cached hash."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def freeze(value: Any) -> Hashable:
    """Return a hashable key for a value; 1, 1.0 and True differ, and equal lists agree."""
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = map(freeze, value)
        return (type(value), frozenset(parts) if isinstance(value, (set, frozenset)) else tuple(parts))
    if isinstance(value, dict):
        return (dict, tuple((freeze(key), freeze(item)) for key, item in value.items()))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (np.ndarray, value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return (float, value.hex())  # NaN equals itself, and 0.0 differs from -0.0
    try:
        hash(value)
    except TypeError:
        return ByIdentity(value)
    return (type(value), value)


@dataclass(frozen=True, eq=False)
class ByIdentity:
    """Compare an unhashable value by identity."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
