"""Collective operations between actors and tasks: all members of a group call the same function."""

from __future__ import annotations

import threading
from typing import Any

import skate
from skate.util.collective import _rendezvous
from skate.util.collective._custom_group import CustomGroup
from skate.util.collective._group import Group, form_group
from skate.util.collective._torch import gloo_available, nccl_available
from skate.util.collective.backend_registry import custom_backend, register_collective_backend
from skate.util.collective.collective_group.base_collective_group import BaseGroup
from skate.util.collective.types import Backend, ReduceOp

__all__ = [
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_backend_available",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "reduce",
    "reducescatter",
    "register_collective_backend",
    "send",
]

_groups: dict[str, Group | CustomGroup] = {}
_formation_lock = threading.RLock()


def is_backend_available(backend: str) -> bool:
    """Return whether a backend can be used in this process; False for unknown names."""
    try:
        kind = Backend(backend)
    except ValueError:
        return False
    custom = custom_backend(kind)
    if custom is not None:
        return custom.check_backend_availability()
    return nccl_available() if kind == Backend.NCCL else gloo_available()


def is_group_initialized(group_name: str) -> bool:
    """Return whether this process is a connected member of the group."""
    return group_name in _groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = 30000,
) -> None:
    """Join a group and wait for the other members. All members call it, each with its own rank.

    Args:
        world_size: The number of members.
        rank: The rank of this member, from 0.
        backend: ``"gloo"`` for CPU tensors and arrays, ``"nccl"`` (the default) for CUDA tensors, or a name that was
            registered with `register_collective_backend` in this process.
        group_name: Name of the group for the operations.
        gloo_timeout: Milliseconds to wait for the other members, here and in each operation.

    Raises:
        ImportError: If torch is not installed.
        ValueError: If an argument is invalid, or members disagree.
        RuntimeError: If this process is already in a group of this name, the backend is not available, or the other
            members do not join in time.
    """
    kind = Backend(backend)
    _check_name(group_name)
    _check_size(world_size, gloo_timeout)
    if not isinstance(rank, int) or not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to {world_size - 1} in a group of {world_size}, got {rank!r}.")
    with _formation_lock:
        if group_name in _groups:
            raise RuntimeError(
                f"Trying to initialize a group twice: this process is in collective group {group_name!r} "
                "already. Use another group_name, or destroy_collective_group first."
            )
        _groups[group_name] = _form(group_name, world_size, rank, kind, gloo_timeout)


def create_collective_group(
    actors: list[Any],
    world_size: int,
    ranks: list[int],
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = 30000,
) -> None:
    """Declare a group of actors from outside; they connect on first use.

    Args:
        actors: The handles of the members.
        world_size: The number of members.
        ranks: The rank of each actor.
        backend: A backend of `init_collective_group`.
        group_name: Name of the group for the operations.
        gloo_timeout: Milliseconds to wait for the other members.

    Raises:
        ValueError: If actors, ranks and world size do not match.
        RuntimeError: If a group of this name is already declared.
    """
    kind = Backend(backend)
    _check_name(group_name)
    _check_size(world_size, gloo_timeout)
    if not len(actors) == len(ranks) == world_size:
        raise ValueError(
            f"A group of world_size={world_size} needs the same number of actors and ranks; "
            f"got {len(actors)} actor(s) and {len(ranks)} rank(s)."
        )
    if sorted(ranks) != list(range(world_size)):
        raise ValueError(f"ranks must be 0 to {world_size - 1}, each once, got {ranks}.")
    members = {actor._actor_id.hex(): rank for actor, rank in zip(actors, ranks, strict=True)}
    if len(members) != world_size:
        raise ValueError("An actor can be in a group only once, but the list names an actor twice.")
    declaration = _rendezvous.Declaration(members, world_size, str(kind), gloo_timeout)
    if not _rendezvous.declare(group_name, declaration):
        raise RuntimeError(
            f"Trying to initialize a group twice: collective group {group_name!r} is already declared. "
            "Use another group_name, or destroy_collective_group first."
        )


def destroy_collective_group(group_name: str = "default") -> None:
    """Leave a group and remove its declaration; without such a group, do nothing."""
    _check_name(group_name)
    with _formation_lock:
        group = _groups.pop(group_name, None)
    if group is not None:
        group.close()
    if skate.is_initialized():
        _rendezvous.undeclare(group_name)


def get_rank(group_name: str = "default") -> int:
    """Return the rank of this process in the group, or -1 if it is not a member."""
    group = _groups.get(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """Return the number of members of the group, or -1 if this process is not a member."""
    group = _groups.get(group_name)
    return -1 if group is None else group.world_size


def get_group_handle(group_name: str = "default") -> Group | BaseGroup:
    """Return the group object of this process; a declared group is connected if necessary.

    Returns:
        The group; for a custom backend, the instance of its class.

    Raises:
        RuntimeError: If this process is not a member of any group of this name.
    """
    return _get_group(group_name).handle


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the tensor of every member with the reduction over all members.

    Args:
        tensor: A torch tensor or a writable NumPy array; of the same shape and dtype on all members.
        group_name: The group.
        op: The reduction.
    """
    _get_group(group_name).allreduce(tensor, op)


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the tensor of one member with the reduction over all members; the others keep theirs.

    Args:
        tensor: A torch tensor or a NumPy array.
        dst_rank: The member that receives the result.
        group_name: The group.
        op: The reduction.
    """
    _get_group(group_name).reduce(tensor, dst_rank, op)


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Replace the tensor of every member with that of one member.

    Args:
        tensor: A torch tensor or a NumPy array.
        src_rank: The member whose tensor is sent.
        group_name: The group.
    """
    _get_group(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """Gather the tensors of all members on every member.

    Args:
        tensor_list: One tensor or array per rank; they are overwritten.
        tensor: The tensor of this member.
        group_name: The group.
    """
    _get_group(group_name).allgather(tensor_list, tensor)


def reducescatter(
    tensor: Any, tensor_list: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Reduce lists of tensors element-wise over all members, and give each member the entry of its rank.

    Args:
        tensor: Receives the result.
        tensor_list: The tensors of this member, one per rank.
        group_name: The group.
        op: The reduction.
    """
    _get_group(group_name).reducescatter(tensor, tensor_list, op)


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Send a tensor to another member, which must call `recv`.

    Args:
        tensor: A torch tensor or a NumPy array.
        dst_rank: The member that receives it.
        group_name: The group.
    """
    _get_group(group_name).send(tensor, dst_rank)


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Replace the tensor with the one that another member sends.

    Args:
        tensor: A torch tensor or a writable NumPy array, of the size of the sent one.
        src_rank: The member that sends it.
        group_name: The group.
    """
    _get_group(group_name).recv(tensor, src_rank)


def barrier(group_name: str = "default") -> None:
    """Wait until all members have called this."""
    _get_group(group_name).barrier()


def _get_group(name: str) -> Group | CustomGroup:
    group = _groups.get(name)
    if group is not None:
        return group
    with _formation_lock:
        if name not in _groups:
            _groups[name] = _join_declared(name)
        return _groups[name]


def _form(name: str, world_size: int, rank: int, backend: Backend, timeout_ms: int) -> Group | CustomGroup:
    custom = custom_backend(backend)
    if custom is not None:
        return CustomGroup(name, backend, rank, world_size, custom)
    return form_group(name, world_size, rank, backend, timeout_ms)


def _join_declared(name: str) -> Group | CustomGroup:
    declaration = _rendezvous.declaration_of(name) if skate.is_initialized() else None
    actor_id = skate.get_runtime_context().get_actor_id() if declaration is not None else None
    if declaration is None or actor_id not in declaration.ranks:
        raise RuntimeError(
            f"This process is not in a collective group {name!r}. Call init_collective_group in every "
            "member, or create_collective_group with their handles in the driver."
        )
    return _form(
        name,
        declaration.world_size,
        declaration.ranks[actor_id],
        Backend(declaration.backend),
        declaration.timeout_ms,
    )


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"group_name must be a non-empty str, got {name!r}.")


def _check_size(world_size: int, timeout_ms: int) -> None:
    if not isinstance(world_size, int) or world_size < 1:
        raise ValueError(f"world_size must be 1 or more, got {world_size!r}.")
    if not isinstance(timeout_ms, int | float) or timeout_ms <= 0:
        raise ValueError(f"gloo_timeout must be a positive number of milliseconds, got {timeout_ms!r}.")
