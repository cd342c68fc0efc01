"""Batch formats."""

from __future__ import annotations

import enum

__all__ = ["BatchFormat"]


class BatchFormat(enum.StrEnum):
    """The format of a batch: a DataFrame, an Arrow table, or a dict of arrays.

    >>> BatchFormat("pandas") is BatchFormat.PANDAS
    True
    """

    PANDAS = "pandas"
    ARROW = "arrow"
    NUMPY = "numpy"
