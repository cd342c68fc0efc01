"""Numbers and names that more than one part of `skate.data` goes by."""

from __future__ import annotations

__all__ = ["MAX_REPR_LENGTH", "TENSOR_COLUMN_NAME"]

#: The text that a preprocessor of a few columns prints as is no longer than this.
MAX_REPR_LENGTH = 120

#: What the one column of a batch is called that is an array and not a dict of arrays.
TENSOR_COLUMN_NAME = "__value__"
