"""What a batch may hold and how long it may wait for more, checked once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from skate.air import _arguments as arguments
from skate.serve._config import defaults

BatchSize = Callable[[list[Any]], float]


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """The settings of one batched function. A change makes new ones, so a batch can hold on to its own.

    Args:
        max_batch_size: How many calls a batch may hold, or what they may cost together by `batch_size_fn`.
        batch_wait_timeout_s: How long the first call of a batch waits for others.
        max_concurrent_batches: How many batches may run at a time.
        batch_size_fn: What the calls of a batch cost together; without it, each counts one.

    Raises:
        TypeError: If a value is of the wrong type.
        ValueError: If a value is out of range.
    """

    max_batch_size: int = defaults.MAX_BATCH_SIZE
    batch_wait_timeout_s: float = defaults.BATCH_WAIT_TIMEOUT_S
    max_concurrent_batches: int = defaults.MAX_CONCURRENT_BATCHES
    batch_size_fn: BatchSize | None = None

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_concurrent_batches"):
            object.__setattr__(self, name, _whole_number(name, getattr(self, name)))
        wait = self.batch_wait_timeout_s
        if not isinstance(wait, int | float):
            raise TypeError(f"batch_wait_timeout_s must be a float >= 0, got {arguments.shown(wait)}.")
        if not wait >= 0:
            raise ValueError(f"batch_wait_timeout_s must be a float >= 0, got {wait}.")
        if self.batch_size_fn is not None and not callable(self.batch_size_fn):
            raise TypeError(
                f"batch_size_fn must be a callable or None, got {arguments.shown(self.batch_size_fn)}."
            )


def _whole_number(name: str, value: object) -> int:
    # A YAML file or a computed value may well say 8.0.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    try:
        number = operator.index(whole)  # type: ignore[arg-type] # what is no integer is what this finds out
    except TypeError:
        raise TypeError(f"{name} must be an integer >= 1, got {arguments.shown(value)}.") from None
    if number < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value}.")
    return number
