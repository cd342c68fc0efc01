"""Keys that are equal for what is made alike: trees, and the values in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable


class Fingerprint(tuple[Any, ...]):
    """Hold what tells trees of different structure apart, and its hash, which a long list would make slow."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def freeze(value: Any) -> Hashable:
    """Return a key for a value in which 1, 1.0 and True differ, and equal lists agree."""
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = map(freeze, value)
        return (type(value), frozenset(parts) if isinstance(value, (set, frozenset)) else tuple(parts))
    if isinstance(value, dict):
        return (dict, tuple((freeze(key), freeze(item)) for key, item in value.items()))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (np.ndarray, value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return (float, value.hex())  # NaN equals itself here, and 0.0 is not -0.0
    try:
        hash(value)
    except TypeError:
        return ByIdentity(value)
    return (type(value), value)


@dataclass(frozen=True, eq=False)
class ByIdentity:
    """Compare a value that has no equality of its own by what object it is."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
