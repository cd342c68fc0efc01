"""Functions and classes for custom preprocessors."""

from __future__ import annotations

import hashlib

from skate.data._preprocessors.statistics import StatComputationPlan

__all__ = ["StatComputationPlan", "simple_hash", "simple_split_tokenizer"]


def simple_split_tokenizer(value: str) -> list[str]:
    """Split a text at spaces.

    >>> simple_split_tokenizer("two words")
    ['two', 'words']
    """
    return value.split(" ")


def simple_hash(value: object, num_features: int) -> int:
    """Return a hash from 0 to `num_features`, exclusive, that is the same on every machine.

    >>> simple_hash("banana", 100)
    10
    """
    digest = hashlib.sha256(str(value).encode()).digest()
    return int.from_bytes(digest) % num_features
