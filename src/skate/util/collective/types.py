"""Backends, reductions and options of collective operations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import ClassVar, Final

__all__ = [
    "AllGatherOptions",
    "AllReduceOptions",
    "Backend",
    "BarrierOptions",
    "BroadcastOptions",
    "RecvOptions",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "SendOptions",
    "unset_timeout_ms",
]

unset_timeout_ms: Final = timedelta(milliseconds=-1)


class Backend(str):
    """The name of a communication backend.

    ``Backend("gloo")`` (or ``"torch_gloo"``) is for CPU tensors and arrays, ``Backend("nccl")`` for CUDA tensors;
    `register_collective_backend` adds others. Case is ignored.

    Raises:
        ValueError: If the backend is unknown.
    """

    __slots__ = ()

    NCCL: ClassVar[str] = "NCCL"
    GLOO: ClassVar[str] = "GLOO"
    UNRECOGNIZED: ClassVar[str] = "unrecognized"
    _known: ClassVar[dict[str, str]] = {"GLOO": "GLOO", "TORCH_GLOO": "GLOO", "NCCL": "NCCL"}

    def __new__(cls, name: str) -> Backend:
        """Return the backend of this name."""
        if not isinstance(name, str):
            raise TypeError(f"The name of a backend must be a str, got {name!r}; use 'gloo' or 'nccl'.")
        known = cls._known.get(name.upper())
        if known is None:
            raise ValueError(
                f"Unrecognized backend: {name!r}. Only NCCL and GLOO are supported, and the backends that this process "
                "has registered with register_collective_backend: call it in the driver and in every member."
            )
        return super().__new__(cls, known)


class ReduceOp(Enum):
    """The reduction of the tensors of all ranks."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


# Custom backends receive these options. The names are Ray's.


@dataclass
class AllReduceOptions:
    """Options of `allreduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BarrierOptions:
    """Options of `barrier`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceOptions:
    """Options of `reduce`; rank `root_rank` receives the result."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class AllGatherOptions:
    """Options of `allgather`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BroadcastOptions:
    """Options of `broadcast`; rank `root_rank` has the value."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceScatterOptions:
    """Options of `reducescatter`."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  # Ray's name
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class SendOptions:
    """Options of `send`; rank `dst_rank` receives."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class RecvOptions:
    """Options of `recv`; rank `src_rank` sends."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    unset_timeout_ms: timedelta = unset_timeout_ms
