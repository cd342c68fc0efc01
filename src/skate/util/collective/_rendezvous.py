"""Rendezvous of the members of a group through small actors, without additional ports.

`wait_for_members` blocks until all ranks of a group have joined, so that members never see data of an earlier group
of the same name. Each group then has a token, under which its members exchange their addresses.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import skate
from skate.exceptions import GetTimeoutError, RayActorError

__all__ = [
    "Declaration",
    "FormedGroup",
    "declaration_of",
    "declare",
    "publish",
    "read",
    "undeclare",
    "wait_for_members",
]

# The names of the two actors. An actor ends with the process that started it. Members of groups come and go, so
# declarations have a separate actor, which only processes that declare groups start.
_RENDEZVOUS: Final = "skate.util.collective.rendezvous"
_DECLARATIONS: Final = "skate.util.collective.declarations"

# By node, worker and name of the actor: a later session of this process has another node.
_handles: dict[tuple[str, str, str], Any] = {}


@dataclass(frozen=True)
class FormedGroup:
    """A group that all ranks have joined.

    Attributes:
        token: Unique identifier of this group.
        nodes: The node of each rank.
    """

    token: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Declaration:
    """A group that the driver declared; its members join on first use."""

    ranks: dict[str, int]
    world_size: int
    backend: str
    timeout_ms: int


def wait_for_members(name: str, world_size: int, rank: int, backend: str, timeout: float) -> FormedGroup:
    """Wait for the other ranks of the group.

    Raises:
        RuntimeError: If they do not join within `timeout` seconds.
        ValueError: If another member requested another world size or backend, or the same rank.
    """
    deadline = time.monotonic() + timeout
    node = skate.get_runtime_context().get_node_id()
    while True:
        rendezvous = _rendezvous()
        member = uuid.uuid4().hex
        coming = rendezvous.join.remote(name, world_size, rank, backend, member, node)
        try:
            token, nodes = skate.get(coming, timeout=max(0.0, deadline - time.monotonic()))
        except GetTimeoutError:
            missing = skate.get(rendezvous.leave.remote(name, member))
            raise RuntimeError(
                f"Rank {rank} of collective group {name!r} waited {timeout:g} s for rank(s) "
                f"{', '.join(map(str, missing))} without success. All {world_size} members must call "
                "init_collective_group at the same time, or, in a declared group, their first operation."
            ) from None
        except RayActorError:
            if time.monotonic() > deadline:
                raise
            _handles.clear()  # its owner has ended; the next caller starts another
        else:
            return FormedGroup(token, tuple(nodes))


def publish(token: str, key: str, value: bytes) -> None:
    """Publish a value for the other members."""
    skate.get(_rendezvous().publish.remote(token, key, value))


def read(token: str, keys: list[str], timeout: float) -> dict[str, bytes]:
    """Return the values that members published under `keys`, once all are available."""
    found: dict[str, bytes] = skate.get(_rendezvous().read.remote(token, keys), timeout=timeout)
    return found


def finish(token: str) -> None:
    """Report that this member has read all values it needs."""
    _rendezvous().finish.remote(token)


def declare(name: str, declaration: Declaration) -> bool:
    """Declare a group; return False if one of this name is already declared."""
    deadline = time.monotonic() + declaration.timeout_ms / 1000
    while True:
        try:
            return bool(skate.get(_declarations().declare.remote(name, declaration)))
        except RayActorError:
            if time.monotonic() > deadline:
                raise
            _handles.clear()  # its owner has ended


def declaration_of(name: str) -> Declaration | None:
    """Return the declaration of a group, or None."""
    try:
        found: Declaration | None = skate.get(skate.get_actor(_DECLARATIONS).declaration_of.remote(name))
    except (ValueError, RayActorError):
        return None  # no running process has declared a group
    return found


def undeclare(name: str) -> None:
    """Remove the declaration of a group, if there is one."""
    try:
        skate.get(skate.get_actor(_DECLARATIONS).undeclare.remote(name))
    except (ValueError, RayActorError):
        pass  # as above


def _rendezvous() -> Any:
    return _actor(_RENDEZVOUS, Rendezvous)


def _declarations() -> Any:
    return _actor(_DECLARATIONS, Declarations)


def _actor(name: str, kind: type) -> Any:
    """Return the handle of an actor of this namespace; start it if necessary."""
    context = skate.get_runtime_context()
    key = context.get_node_id(), context.get_worker_id(), name
    handle = _handles.get(key)
    if handle is None:
        for stale in [each for each in _handles if each[:2] != key[:2]]:
            del _handles[stale]  # of an earlier session
        actor = skate.remote(num_cpus=0, max_concurrency=1000)(kind)
        handle = _handles[key] = actor.options(name=name, get_if_exists=True).remote()
    return handle


@dataclass
class _PendingGroup:
    """A group that waits for some of its ranks."""

    world_size: int
    backend: str
    members: dict[int, _Member] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self.members]


@dataclass
class _Member:
    id: str
    node: str
    arrival: asyncio.Future[tuple[str, list[str]] | None]


class Rendezvous:
    """The actor through which members find each other. All methods are coroutines, so it needs no lock."""

    def __init__(self) -> None:
        self._pending: dict[str, _PendingGroup] = {}
        self._published: dict[str, dict[str, bytes]] = {}
        self._unfinished: dict[str, int] = {}
        self._news = asyncio.Condition()

    async def join(
        self, name: str, world_size: int, rank: int, backend: str, member: str, node: str
    ) -> tuple[str, list[str]] | None:
        """Join a group, and return its token and nodes once all ranks have joined."""
        pending = self._pending.get(name)
        if pending is not None and (pending.world_size, pending.backend) != (world_size, backend):
            # The pending group may be left over from members that were killed, so the new member takes precedence.
            self._reject(
                pending,
                f"Rank {rank} of collective group {name!r} joined with world_size={world_size} and "
                f"backend={backend}; this member with {pending.world_size} and {pending.backend}.",
            )
            pending = None
        if pending is None:
            pending = self._pending[name] = _PendingGroup(world_size, backend)
        earlier = pending.members.pop(rank, None)
        if earlier is not None and not earlier.arrival.done():
            earlier.arrival.set_exception(
                ValueError(f"Another member of collective group {name!r} also joined as rank {rank}.")
            )
        arrival: asyncio.Future[tuple[str, list[str]] | None] = asyncio.get_running_loop().create_future()
        pending.members[rank] = _Member(member, node, arrival)
        if not pending.missing:
            self._complete(name, pending)
        return await arrival

    def _complete(self, name: str, pending: _PendingGroup) -> None:
        del self._pending[name]
        token = uuid.uuid4().hex
        self._published[token] = {}
        self._unfinished[token] = pending.world_size
        nodes = [pending.members[rank].node for rank in range(pending.world_size)]
        for member in pending.members.values():
            if not member.arrival.done():
                member.arrival.set_result((token, nodes))

    @staticmethod
    def _reject(pending: _PendingGroup, reason: str) -> None:
        for member in pending.members.values():
            if not member.arrival.done():
                member.arrival.set_exception(ValueError(reason))

    async def leave(self, name: str, member: str) -> list[int]:
        """Stop waiting, and return the ranks that have not joined."""
        pending = self._pending.get(name)
        if pending is None:
            return []
        missing = pending.missing
        for rank, known in list(pending.members.items()):
            if known.id == member:
                if not known.arrival.done():
                    known.arrival.set_result(None)  # the waiter is gone
                del pending.members[rank]
        if not pending.members:
            del self._pending[name]
        return missing

    async def publish(self, token: str, key: str, value: bytes) -> None:
        """Store a value for the other members."""
        async with self._news:
            self._published.setdefault(token, {})[key] = value
            self._news.notify_all()

    async def read(self, token: str, keys: list[str]) -> dict[str, bytes]:
        """Return the values of `keys` once all are available."""
        async with self._news:
            await self._news.wait_for(lambda: self._published.get(token, {}).keys() >= set(keys))
            known = self._published[token]
            return {key: known[key] for key in keys}

    async def finish(self, token: str) -> None:
        """Delete the published values once all members have finished."""
        self._unfinished[token] -= 1
        if self._unfinished[token] == 0:
            del self._unfinished[token]
            self._published.pop(token, None)


class Declarations:
    """The actor that stores declarations."""

    def __init__(self) -> None:
        self._declared: dict[str, Declaration] = {}

    async def declare(self, name: str, declaration: Declaration) -> bool:
        """Store a declaration; return False if one of this name exists."""
        return self._declared.setdefault(name, declaration) is declaration

    async def declaration_of(self, name: str) -> Declaration | None:
        """Return a declaration, or None."""
        return self._declared.get(name)

    async def undeclare(self, name: str) -> None:
        """Remove a declaration."""
        self._declared.pop(name, None)
