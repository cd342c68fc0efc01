"""Constants shared by several parts of `skate.data`."""

from __future__ import annotations

__all__ = ["MAX_REPR_LENGTH", "TENSOR_COLUMN_NAME"]

#: Maximum length of the repr of a preprocessor with a few columns.
MAX_REPR_LENGTH = 120

#: Name of the column of a batch that is an array instead of a dict of arrays.
TENSOR_COLUMN_NAME = "__value__"
