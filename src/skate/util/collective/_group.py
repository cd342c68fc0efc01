"""A member of a collective group, with its own torch process group.

The process group is created directly, not through ``torch.distributed.init_process_group``, so a process can be in
any number of groups, and the default process group of the program is unaffected.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from skate.util import _interfaces, _session
from skate.util.collective import _rendezvous
from skate.util.collective._torch import check_backend, load_torch, tensor_of
from skate.util.collective.types import Backend, ReduceOp

__all__ = ["Group", "Membership", "form_group"]

_GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"  # with which a user chooses the interface of gloo


class Membership:
    """The membership of one process in one group.

    Attributes:
        name: The name of the group.
        backend: The backend of the group.
        rank: The rank of this process.
        world_size: The number of members.
    """

    def __init__(self, name: str, backend: Backend, rank: int, world_size: int) -> None:
        self.name = name
        self.backend = backend
        self.rank = rank
        self.world_size = world_size

    def check_rank(self, rank: int) -> None:
        """Raise ValueError unless `rank` is a rank of the group."""
        if not isinstance(rank, int) or not 0 <= rank < self.world_size:
            raise ValueError(
                f"Rank {rank!r} is not in collective group {self.name!r}, "
                f"whose ranks are 0 to {self.world_size - 1}."
            )

    def check_peer(self, rank: int) -> None:
        """Raise an error unless `rank` is another rank of the group."""
        self.check_rank(rank)
        if rank == self.rank:
            raise RuntimeError(f"Rank {rank} of collective group {self.name!r} cannot send to itself.")

    def check_length(self, operation: str, tensor_list: list[Any]) -> None:
        """Raise an error unless the list has one tensor per rank."""
        if not isinstance(tensor_list, list):
            raise TypeError(f"{operation} takes a list of tensors, got {type(tensor_list).__qualname__}.")
        if len(tensor_list) != self.world_size:
            raise ValueError(
                f"{operation} in collective group {self.name!r} takes a list of {self.world_size} tensors, "
                f"one per rank; got {len(tensor_list)}."
            )


class Group(Membership):
    """Run the operations of one group in this process."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        rank: int,
        world_size: int,
        process_group: Any,
        cleanup: Callable[[], None],
    ) -> None:
        super().__init__(name, backend, rank, world_size)
        self._group = process_group
        self._cleanup = cleanup
        self._torch = load_torch()

    @property
    def handle(self) -> Group:
        """The group, for the program."""
        return self

    def close(self) -> None:
        """Close the connections to the other members."""
        group, self._group = self._group, None
        if hasattr(group, "shutdown"):
            group.shutdown()
        self._cleanup()

    def allreduce(self, tensor: Any, op: ReduceOp) -> None:
        """Replace the tensor with the reduction over all ranks."""
        with tensor_of(tensor, self.backend, written=True) as operand:
            self._reduce_in_place(operand, op)

    def reduce(self, tensor: Any, dst_rank: int, op: ReduceOp) -> None:
        """Replace the tensor of `dst_rank` with the reduction over all ranks."""
        self.check_rank(dst_rank)
        options = self._torch.distributed.ReduceOptions()
        options.rootRank = dst_rank
        with tensor_of(tensor, self.backend, written=self.rank == dst_rank) as operand:
            # Gloo uses the tensors of the other ranks as scratch space.
            mine = operand if self.rank == dst_rank else operand.clone()
            options.reduceOp = self._reduction(op, mine)
            self._run("reduce", lambda group: group.reduce([mine], options))

    def broadcast(self, tensor: Any, src_rank: int) -> None:
        """Replace the tensor of every rank with that of `src_rank`."""
        self.check_rank(src_rank)
        options = self._torch.distributed.BroadcastOptions()
        options.rootRank = src_rank
        with tensor_of(tensor, self.backend, written=self.rank != src_rank) as operand:
            self._run("broadcast", lambda group: group.broadcast([self._raw(operand)], options))

    def allgather(self, tensor_list: list[Any], tensor: Any) -> None:
        """Fill the list with the tensors of all ranks."""
        self.check_length("allgather", tensor_list)
        with contextlib.ExitStack() as stack:
            outputs = [
                self._raw(stack.enter_context(tensor_of(output, self.backend, written=True)))
                for output in tensor_list
            ]
            operand = self._raw(stack.enter_context(tensor_of(tensor, self.backend, written=False)))
            self._run("allgather", lambda group: group.allgather([outputs], [operand]))

    def reducescatter(self, tensor: Any, tensor_list: list[Any], op: ReduceOp) -> None:
        """Replace the tensor with the reduction over all ranks of the list entry for this rank."""
        self.check_length("reducescatter", tensor_list)
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(tensor_of(tensor, self.backend, written=True))
            inputs = [
                stack.enter_context(tensor_of(entry, self.backend, written=False)) for entry in tensor_list
            ]
            # Not every version of Gloo supports reduce-scatter, and those that do implement it this way.
            everything = self._torch.stack(inputs)
            self._reduce_in_place(everything, op)
            output.copy_(everything[self.rank])

    def send(self, tensor: Any, dst_rank: int) -> None:
        """Send the tensor to another rank, which must receive it."""
        self.check_peer(dst_rank)
        with tensor_of(tensor, self.backend, written=False) as operand:
            self._run("send", lambda group: group.send([self._raw(operand)], dst_rank, 0))

    def recv(self, tensor: Any, src_rank: int) -> None:
        """Replace the tensor with the one that another rank sends."""
        self.check_peer(src_rank)
        with tensor_of(tensor, self.backend, written=True) as operand:
            self._run("recv", lambda group: group.recv([self._raw(operand)], src_rank, 0))

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        options = self._torch.distributed.BarrierOptions()
        if self.backend == Backend.NCCL:
            options.device_ids = [self._torch.cuda.current_device()]
        self._run("barrier", lambda group: group.barrier(options))

    def _reduce_in_place(self, operand: Any, op: ReduceOp) -> None:
        options = self._torch.distributed.AllreduceOptions()
        options.reduceOp = self._reduction(op, operand)
        self._run("allreduce", lambda group: group.allreduce([operand], options))

    def _reduction(self, op: ReduceOp, operand: Any) -> Any:
        if not isinstance(op, ReduceOp):
            raise TypeError(f"op must be a ReduceOp such as ReduceOp.SUM, got {op!r}.")
        torch = self._torch
        if operand.dtype in (torch.int16, torch.uint16, torch.uint32, torch.uint64):
            raise TypeError(f"{self.backend} cannot reduce {operand.dtype}; convert to torch.int32 or int64.")
        return getattr(torch.distributed.ReduceOp, op.name)

    def _raw(self, operand: Any) -> Any:
        """View a tensor as bytes, because operations that only move data support any dtype."""
        return operand.reshape(-1).view(self._torch.uint8)

    def _run(self, operation: str, start: Callable[[Any], Any]) -> None:
        try:
            start(self._group).wait()
        except RuntimeError as error:
            raise RuntimeError(
                f"{operation} failed on rank {self.rank} of collective group {self.name!r}; another member "
                f"may have ended, or may not have called {operation} with a tensor of the same size in time: {error}"
            ) from error


def form_group(name: str, world_size: int, rank: int, backend: Backend, timeout_ms: int) -> Group:
    """Wait for the other members and connect to them.

    Raises:
        ImportError: If torch is not installed.
        RuntimeError: If the backend or the engine does not support it, or members do not join in time.
    """
    check_backend(backend)
    timeout = timeout_ms / 1000
    meeting = None
    if world_size > 1:
        if _session.engine_name() == "inline":
            raise RuntimeError(
                f"Collective group {name!r} has {world_size} members, which run concurrently; the "
                "inline engine runs one task at a time. Use skate.init(engine='local')."
            )
        meeting = _rendezvous.wait_for_members(name, world_size, rank, str(backend), timeout)
    connect = _connect_nccl if backend == Backend.NCCL else _connect_gloo
    try:
        process_group, cleanup = connect(rank, world_size, meeting, timeout)
    except Exception as error:
        raise RuntimeError(
            f"Rank {rank} of collective group {name!r} could not connect to the others: {error}"
        ) from error
    finally:
        if meeting is not None:
            _rendezvous.finish(meeting.token)
    return Group(name, backend, rank, world_size, process_group, cleanup)


def _connect_gloo(
    rank: int, world_size: int, meeting: _rendezvous.FormedGroup | None, timeout: float
) -> tuple[Any, Callable[[], None]]:
    distributed = load_torch().distributed
    gloo = distributed.ProcessGroupGloo
    store = distributed.HashStore() if meeting is None else _store(meeting.token, timeout)
    options = gloo._Options()
    options._timeout = timedelta(seconds=timeout)
    is_on_one_node = meeting is None or len(set(meeting.nodes)) == 1
    host = _interfaces.LOOPBACK if is_on_one_node else _interfaces.node_address()
    if is_on_one_node or (_GLOO_VARIABLE not in os.environ and _interfaces.interface_of(host) is not None):
        options._devices = [gloo.create_device(hostname=host)]
    else:
        options._devices = [gloo.create_default_device()]
    return gloo(store, rank, world_size, options), lambda: None


def _connect_nccl(
    rank: int, world_size: int, meeting: _rendezvous.FormedGroup | None, timeout: float
) -> tuple[Any, Callable[[], None]]:
    distributed = load_torch().distributed
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout)
    if meeting is None:
        return distributed.ProcessGroupNCCL(distributed.HashStore(), rank, world_size, options), lambda: None
    if len(set(meeting.nodes)) > 1:
        raise NotImplementedError("the NCCL backend connects members on one node only")
    _interfaces.bind_collectives(_interfaces.LOOPBACK)
    # NCCL's threads use the store during the lifetime of the group; they must not need Python for it.
    folder = _session.session_folder() or tempfile.gettempdir()
    path = Path(folder) / f"skate-nccl-{os.getuid()}-{meeting.token}"
    store = distributed.FileStore(str(path), world_size)

    def cleanup() -> None:
        if rank == 0:
            path.unlink(missing_ok=True)

    return distributed.ProcessGroupNCCL(store, rank, world_size, options), cleanup


def _store(token: str, timeout: float) -> Any:
    """Return a torch store in which the members of a group exchange their addresses."""
    distributed = load_torch().distributed

    class RendezvousStore(distributed.Store):  # type: ignore[misc, name-defined]  # torch is loaded lazily
        def __init__(self) -> None:
            super().__init__()
            self._known: dict[str, bytes] = {}

        def set(self, key: str, value: bytes) -> None:
            _rendezvous.publish(token, key, bytes(value))

        def get(self, key: str) -> bytes:
            self.wait([key])
            return self._known[key]

        def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=timeout)) -> None:
            unknown = [key for key in keys if key not in self._known]
            if unknown:
                self._known.update(_rendezvous.read(token, unknown, timeout.total_seconds()))

        def has_extended_api(self) -> bool:
            return False

    return RendezvousStore()
