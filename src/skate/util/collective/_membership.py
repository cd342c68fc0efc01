"""Which member of which group this process is, whatever the backend."""

from __future__ import annotations

from typing import Any

from skate.util.collective.types import Backend

__all__ = ["Membership"]


class Membership:
    """One process in one group.

    Attributes:
        name: The name of the group.
        backend: What moves the data.
        rank: The rank of this process.
        world_size: The number of members.
    """

    def __init__(self, name: str, backend: Backend, rank: int, world_size: int) -> None:
        self.name = name
        self.backend = backend
        self.rank = rank
        self.world_size = world_size

    def check_rank(self, rank: int) -> None:
        """Raise ValueError unless `rank` is one of the group's."""
        if not isinstance(rank, int) or not 0 <= rank < self.world_size:
            raise ValueError(
                f"Rank {rank!r} is not in collective group {self.name!r}, "
                f"whose ranks are 0 to {self.world_size - 1}."
            )

    def check_peer(self, rank: int) -> None:
        """Raise an error unless `rank` is another one of the group's."""
        self.check_rank(rank)
        if rank == self.rank:
            raise RuntimeError(f"Rank {rank} of collective group {self.name!r} cannot send to itself.")

    def check_length(self, operation: str, tensor_list: list[Any]) -> None:
        """Raise an error unless the list has a tensor for each rank."""
        if not isinstance(tensor_list, list):
            raise TypeError(f"{operation} takes a list of tensors, got {type(tensor_list).__qualname__}.")
        if len(tensor_list) != self.world_size:
            raise ValueError(
                f"{operation} in collective group {self.name!r} takes a list of {self.world_size} tensors, "
                f"one for each rank; got {len(tensor_list)}."
            )
