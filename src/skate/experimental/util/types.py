"""Operations and devices of collective operations in compiled graphs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AllGatherOp", "AllReduceOp", "Device", "ReduceOp", "ReduceScatterOp"]


class ReduceOp(Enum):
    """The reduction of the tensors of all ranks."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3
    AVG = 4


@dataclass
class AllGatherOp:
    """Gather the tensors of all ranks on every rank."""


@dataclass
class AllReduceOp:
    """Reduce over all ranks and give every rank the result."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name


@dataclass
class ReduceScatterOp:
    """Reduce over all ranks and give every rank its part of the result."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name


class Device(Enum):
    """The device on which a reader receives a tensor."""

    DEFAULT = "default"
    CPU = "cpu"
    GPU = "gpu"
    CUDA = "cuda"

    def __str__(self) -> str:
        return self.value
