"""The validated settings of a batched function."""

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
    """The settings of one batched function. They are immutable, so a batch can keep its own.

    Args:
        max_batch_size: The maximum number of calls in a batch, or their maximum size by `batch_size_fn`.
        batch_wait_timeout_s: How long the first call of a batch waits for others.
        max_concurrent_batches: The maximum number of batches that run at the same time.
        batch_size_fn: Returns the size of a batch's items; without it, each call counts as one.

    Raises:
        TypeError: If a value has the wrong type.
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
            raise TypeError(f"batch_wait_timeout_s must be a number of seconds, got {arguments.shown(wait)}.")
        if not wait >= 0:
            raise ValueError(f"batch_wait_timeout_s is {wait} seconds: it cannot be negative.")
        if self.batch_size_fn is not None and not callable(self.batch_size_fn):
            raise TypeError(
                f"batch_size_fn must be a callable or None, not {arguments.shown(self.batch_size_fn)}."
            )


def _whole_number(name: str, value: object) -> int:
    # A YAML file or a computation may result in 8.0.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    try:
        number = operator.index(whole)  # type: ignore[arg-type] # raises for other types
    except TypeError:
        raise TypeError(f"{name} must be an integer >= 1, got {arguments.shown(value)}.") from None
    if number < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value}.")
    return number
