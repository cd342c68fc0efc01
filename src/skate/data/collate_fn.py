"""Classes to derive from, for making what a training step gets out of a batch."""

from __future__ import annotations

import abc
from typing import Any, Generic, TypeVar

__all__ = ["ArrowBatchCollateFn", "CollateFn", "NumpyBatchCollateFn", "PandasBatchCollateFn"]

Batch = TypeVar("Batch")


class CollateFn(abc.ABC, Generic[Batch]):
    """Makes what a training step gets out of a batch. Derive from one of the classes that say what the batch is."""

    @abc.abstractmethod
    def __call__(self, batch: Batch) -> Any:
        """Return tensors for a batch."""


class ArrowBatchCollateFn(CollateFn[Any]):
    """Gets batches as Arrow tables."""


class NumpyBatchCollateFn(CollateFn[dict[str, Any]]):
    """Gets batches as dicts of NumPy arrays."""


class PandasBatchCollateFn(CollateFn[Any]):
    """Gets batches as pandas DataFrames."""
