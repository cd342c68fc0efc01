"""The words that collective operations take."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

__all__ = ["Backend", "ReduceOp"]


class Backend(str):
    """The library that moves the data.

    ``Backend("gloo")`` (or ``"torch_gloo"``) is for CPU tensors and arrays, ``Backend("nccl")`` for CUDA
    tensors. Upper and lower case mean the same.

    Raises:
        ValueError: If the name is none of these.
    """

    __slots__ = ()

    NCCL: ClassVar[str] = "NCCL"
    GLOO: ClassVar[str] = "GLOO"
    UNRECOGNIZED: ClassVar[str] = "unrecognized"

    def __new__(cls, name: str) -> Backend:
        """Return the backend of this name."""
        if not isinstance(name, str):
            raise TypeError(f"A backend is named by a str, got {name!r}; use 'gloo' or 'nccl'.")
        known = {"GLOO": cls.GLOO, "TORCH_GLOO": cls.GLOO, "NCCL": cls.NCCL}.get(name.upper())
        if known is None:
            raise ValueError(f"Unrecognized backend: {name!r}. Only NCCL and GLOO are supported")
        return super().__new__(cls, known)


class ReduceOp(Enum):
    """How the tensors of all ranks become one."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
