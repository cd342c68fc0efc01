"""The words that collective operations of compiled graphs take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AllGatherOp", "AllReduceOp", "Device", "ReduceOp", "ReduceScatterOp"]


class ReduceOp(Enum):
    """How the tensors of all ranks become one."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3
    AVG = 4


@dataclass
class AllGatherOp:
    """Give every rank the tensors of all ranks."""


@dataclass
class AllReduceOp:
    """Give every rank the reduction over all ranks."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name


@dataclass
class ReduceScatterOp:
    """Give every rank its part of the reduction over all ranks."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name


class Device(Enum):
    """Where the reader of a tensor finds it."""

    DEFAULT = "default"
    CPU = "cpu"
    GPU = "gpu"
    CUDA = "cuda"

    def __str__(self) -> str:
        return self.value
