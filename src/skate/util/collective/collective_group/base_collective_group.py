"""The base class of collective groups with a custom backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from skate.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

__all__ = ["BaseGroup"]


class BaseGroup(ABC):
    """One member of a collective group. Subclasses move the data; `register_collective_backend` registers them.

    Each operation receives its tensors in a list of one entry, as in Ray, where entries are for the GPUs of a member.

    Args:
        world_size: The number of members.
        rank: The rank of this member.
        group_name: The name of the group.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        self._world_size = world_size
        self._rank = rank
        self._group_name = group_name

    @property
    def rank(self) -> int:
        """The rank of this member."""
        return self._rank

    @property
    def world_size(self) -> int:
        """The number of members."""
        return self._world_size

    @property
    def group_name(self) -> str:
        """The name of the group."""
        return self._group_name

    def destroy_group(self) -> None:
        """Release the connections to the other members; `destroy_collective_group` calls this."""
        return

    @classmethod
    def backend(cls) -> str:
        """Return the name of the backend."""
        raise NotImplementedError(f"{cls.__qualname__} does not define backend().")

    @classmethod
    @abstractmethod
    def check_backend_availability(cls) -> bool:
        """Return whether this process can use the backend."""

    @abstractmethod
    def allreduce(self, tensor: list[Any], allreduce_options: AllReduceOptions) -> None:
        """Replace the tensor with the reduction over all ranks."""

    @abstractmethod
    def barrier(self, barrier_options: BarrierOptions) -> None:
        """Wait until all ranks have called this."""

    @abstractmethod
    def reduce(self, tensor: list[Any], reduce_options: ReduceOptions) -> None:
        """Replace the tensor of one rank with the reduction over all ranks."""

    @abstractmethod
    def allgather(
        self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: AllGatherOptions
    ) -> None:
        """Fill the list with the tensors of all ranks."""

    @abstractmethod
    def broadcast(self, tensor: list[Any], broadcast_options: BroadcastOptions) -> None:
        """Replace the tensor of every rank with that of one rank."""

    @abstractmethod
    def reducescatter(
        self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: ReduceScatterOptions
    ) -> None:
        """Replace the tensor with the reduction over all ranks of the list entry for this rank."""

    @abstractmethod
    def send(self, tensor: list[Any], send_options: SendOptions) -> None:
        """Send the tensor to another rank."""

    @abstractmethod
    def recv(self, tensor: list[Any], recv_options: RecvOptions) -> None:
        """Replace the tensor with the one that another rank sends."""
