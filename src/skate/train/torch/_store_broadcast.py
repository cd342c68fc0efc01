"""Broadcasts between the processes of a launcher, through the store of their process group."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import cloudpickle

_PART_SIZE = 4 << 20  # torch's server refuses values of 8 MiB


class StoreBroadcast:
    """Broadcasts objects of rank 0 without a collective operation.

    A thread of gloo frees the tensors of a collective operation some time after the operation has returned. It needs
    the interpreter for that, and aborts the process if the program has ended meanwhile.
    """

    def __init__(self, store: Any, rank: int, world_size: int, timeout: float) -> None:
        """Broadcast through a store of torch.distributed.

        Args:
            store: The store that the processes share.
            rank: The rank of this process.
            world_size: The number of processes.
            timeout: Seconds to wait for the other processes.
        """
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._timeout = datetime.timedelta(seconds=timeout)

    def __call__(self, value: Any) -> Any:
        """Return the value of rank 0, once every process has called this: it is a barrier, too."""
        number = self._store.add(f"skate/broadcasts/{self._rank}", 1)  # every process makes the same calls
        key = f"skate/broadcast/{number}"
        if self._rank == 0:
            data = cloudpickle.dumps(value)
            parts = [data[start : start + _PART_SIZE] for start in range(0, len(data), _PART_SIZE)]
            for index, part in enumerate(parts):
                self._store.set(f"{key}/part/{index}", part)
            self._store.set(f"{key}/parts", str(len(parts)))
        self._count(f"{key}/called", self._world_size)
        self._store.wait([f"{key}/called/all"], self._timeout)
        if self._rank != 0:
            parts = [
                self._store.get(f"{key}/part/{index}")
                for index in range(int(self._store.get(f"{key}/parts")))
            ]
            self._count(f"{key}/read", self._world_size - 1)
            return pickle.loads(b"".join(parts))
        if self._world_size > 1:
            # The server may run in this process, which may end as soon as this call has returned.
            self._store.wait([f"{key}/read/all"], self._timeout)
        names = (
            "called",
            "called/all",
            "read",
            "read/all",
            "parts",
            *(f"part/{index}" for index in range(len(parts))),
        )
        for name in names:
            self._store.delete_key(f"{key}/{name}")
        return value

    def _count(self, key: str, expected: int) -> None:
        """Count this process; the last one wakes those that wait."""
        if self._store.add(key, 1) == expected:
            self._store.set(f"{key}/all", b"")
