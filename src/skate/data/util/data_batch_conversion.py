"""The formats that a batch of rows can have."""

from __future__ import annotations

import enum

__all__ = ["BatchFormat"]


class BatchFormat(enum.StrEnum):
    """What a batch is: a DataFrame, a table of Arrow, or a dict of arrays.

    >>> BatchFormat("pandas") is BatchFormat.PANDAS
    True
    """

    PANDAS = "pandas"
    ARROW = "arrow"
    NUMPY = "numpy"
