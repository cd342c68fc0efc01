"""Base classes of collate functions, which convert batches to the input of a training step."""

from __future__ import annotations

import abc
from typing import Any, Generic, TypeVar

__all__ = ["ArrowBatchCollateFn", "CollateFn", "NumpyBatchCollateFn", "PandasBatchCollateFn"]

Batch = TypeVar("Batch")


class CollateFn(abc.ABC, Generic[Batch]):
    """Convert a batch to the input of a training step. Derive from the subclass for the desired batch format."""

    @abc.abstractmethod
    def __call__(self, batch: Batch) -> Any:
        """Return tensors for a batch."""


class ArrowBatchCollateFn(CollateFn[Any]):
    """Receive batches as Arrow tables."""


class NumpyBatchCollateFn(CollateFn[dict[str, Any]]):
    """Receive batches as dicts of NumPy arrays."""


class PandasBatchCollateFn(CollateFn[Any]):
    """Receive batches as pandas DataFrames."""
