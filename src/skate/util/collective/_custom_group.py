"""A member of a collective group with a custom backend."""

from __future__ import annotations

from typing import Any

from skate.util.collective._group import Membership
from skate.util.collective.collective_group.base_collective_group import BaseGroup
from skate.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

__all__ = ["CustomGroup"]


class CustomGroup(Membership):
    """Run the operations of one group in this process with the class of the backend.

    Raises:
        RuntimeError: This process cannot use the backend.
    """

    def __init__(
        self, name: str, backend: Backend, rank: int, world_size: int, group_cls: type[BaseGroup]
    ) -> None:
        super().__init__(name, backend, rank, world_size)
        if not group_cls.check_backend_availability():
            raise RuntimeError(
                f"Backend {backend} is not available: {group_cls.__qualname__}.check_backend_availability() returned "
                "False in this process."
            )
        self.handle = group_cls(world_size, rank, name)

    def close(self) -> None:
        """Release the connections to the other members."""
        self.handle.destroy_group()

    def allreduce(self, tensor: Any, op: ReduceOp) -> None:
        """Replace the tensor with the reduction over all ranks."""
        self.handle.allreduce([tensor], AllReduceOptions(op))

    def reduce(self, tensor: Any, dst_rank: int, op: ReduceOp) -> None:
        """Replace the tensor of `dst_rank` with the reduction over all ranks."""
        self.check_rank(dst_rank)
        self.handle.reduce([tensor], ReduceOptions(op, dst_rank))

    def broadcast(self, tensor: Any, src_rank: int) -> None:
        """Replace the tensor of every rank with that of `src_rank`."""
        self.check_rank(src_rank)
        self.handle.broadcast([tensor], BroadcastOptions(src_rank))

    def allgather(self, tensor_list: list[Any], tensor: Any) -> None:
        """Fill the list with the tensors of all ranks."""
        self.check_length("allgather", tensor_list)
        self.handle.allgather([tensor_list], [tensor], AllGatherOptions())

    def reducescatter(self, tensor: Any, tensor_list: list[Any], op: ReduceOp) -> None:
        """Replace the tensor with the reduction over all ranks of the list entry for this rank."""
        self.check_length("reducescatter", tensor_list)
        self.handle.reducescatter([tensor], [tensor_list], ReduceScatterOptions(op))

    def send(self, tensor: Any, dst_rank: int) -> None:
        """Send the tensor to another rank, which must receive it."""
        self.check_peer(dst_rank)
        self.handle.send([tensor], SendOptions(dst_rank))

    def recv(self, tensor: Any, src_rank: int) -> None:
        """Replace the tensor with the one that another rank sends."""
        self.check_peer(src_rank)
        self.handle.recv([tensor], RecvOptions(src_rank))

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self.handle.barrier(BarrierOptions())
