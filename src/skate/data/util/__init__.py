"""Helpers for programs that extend `skate.data`."""

from skate.data.util.data_batch_conversion import BatchFormat

__all__ = ["BatchFormat"]
