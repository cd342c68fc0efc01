"""Functions and classes that preprocessors share, for those who write their own."""

from __future__ import annotations

import hashlib

from skate.data._preprocessors.statistics import StatComputationPlan

__all__ = ["StatComputationPlan", "simple_hash", "simple_split_tokenizer"]


def simple_split_tokenizer(value: str) -> list[str]:
    """Return the parts of a text between spaces.

    >>> simple_split_tokenizer("two words")
    ['two', 'words']
    """
    return value.split(" ")


def simple_hash(value: object, num_features: int) -> int:
    """Return a number from 0 up to `num_features` that is the same for equal values, on every machine.

    >>> simple_hash("banana", 100)
    10
    """
    digest = hashlib.sha256(str(value).encode()).digest()
    return int.from_bytes(digest) % num_features
