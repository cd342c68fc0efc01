"""How the members of a group find each other: through small actors, without any port of its own.

`meet` blocks until all ranks of a group have come, so that nobody ever sees the traces of an earlier group
of the same name. Then each group has a token, under which its members exchange their addresses.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import skate
from skate.exceptions import GetTimeoutError, RayActorError

__all__ = ["Declaration", "Meeting", "declaration_of", "declare", "meet", "publish", "read", "undeclare"]

# The names of the two actors. The process that starts an actor owns it, and the actor ends with that process. Members
# of groups come and go, so declarations have an actor of their own, which only processes that declare groups start.
_MEETINGS: Final = "skate.util.collective.rendezvous"
_DECLARATIONS: Final = "skate.util.collective.declarations"

# By the node, the worker and the name of the actor: a later session of this process has another node.
_handles: dict[tuple[str, str, str], Any] = {}


@dataclass(frozen=True)
class Meeting:
    """A group all of whose ranks have come.

    Attributes:
        token: Names this group, and no other one that ever was.
        nodes: The node of each rank.
    """

    token: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Declaration:
    """A group that the driver has declared: its members join it when they first use it."""

    ranks: dict[str, int]
    world_size: int
    backend: str
    timeout_ms: int


def meet(name: str, world_size: int, rank: int, backend: str, timeout: float) -> Meeting:
    """Wait for the other ranks of the group.

    Raises:
        RuntimeError: If they do not come within `timeout` seconds.
        ValueError: If another member has asked for another world size or backend, or for the same rank.
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
                f"{', '.join(map(str, missing))} in vain. All {world_size} members must call "
                "init_collective_group at the same time, or, in a declared group, their first operation."
            ) from None
        except RayActorError:
            if time.monotonic() > deadline:
                raise
            _handles.clear()  # its owner has ended; the next caller starts another
        else:
            return Meeting(token, tuple(nodes))


def publish(token: str, key: str, value: bytes) -> None:
    """Tell the other members something."""
    skate.get(_rendezvous().publish.remote(token, key, value))


def read(token: str, keys: list[str], timeout: float) -> dict[str, bytes]:
    """Return what members have published under `keys`, once they all have."""
    found: dict[str, bytes] = skate.get(_rendezvous().read.remote(token, keys), timeout=timeout)
    return found


def finish(token: str) -> None:
    """Say that this member has read all it needs."""
    _rendezvous().finish.remote(token)


def declare(name: str, declaration: Declaration) -> bool:
    """Declare a group; False if one of this name is declared already."""
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
        return None  # no group has been declared by anyone who still runs
    return found


def undeclare(name: str) -> None:
    """Withdraw the declaration of a group, if there is one."""
    try:
        skate.get(skate.get_actor(_DECLARATIONS).undeclare.remote(name))
    except (ValueError, RayActorError):
        pass  # as above


def _rendezvous() -> Any:
    return _actor(_MEETINGS, Rendezvous)


def _declarations() -> Any:
    return _actor(_DECLARATIONS, Declarations)


def _actor(name: str, kind: type) -> Any:
    """Return the handle of an actor of this namespace; start it if need be."""
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
class _Forming:
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
    """The actor in which members meet. All its methods are coroutines, so nothing in it needs a lock."""

    def __init__(self) -> None:
        self._forming: dict[str, _Forming] = {}
        self._published: dict[str, dict[str, bytes]] = {}
        self._unfinished: dict[str, int] = {}
        self._news = asyncio.Condition()

    async def join(
        self, name: str, world_size: int, rank: int, backend: str, member: str, node: str
    ) -> tuple[str, list[str]] | None:
        """Come to a group, and return its token and nodes once all ranks have come."""
        forming = self._forming.get(name)
        if forming is not None and (forming.world_size, forming.backend) != (world_size, backend):
            # It may be left over from members that were killed, so the newcomer is believed.
            self._dismiss(
                forming,
                f"Rank {rank} of collective group {name!r} joined with world_size={world_size} and "
                f"backend={backend}; this member with {forming.world_size} and {forming.backend}.",
            )
            forming = None
        if forming is None:
            forming = self._forming[name] = _Forming(world_size, backend)
        earlier = forming.members.pop(rank, None)
        if earlier is not None and not earlier.arrival.done():
            earlier.arrival.set_exception(
                ValueError(f"Another member of collective group {name!r} joined as rank {rank} too.")
            )
        arrival: asyncio.Future[tuple[str, list[str]] | None] = asyncio.get_running_loop().create_future()
        forming.members[rank] = _Member(member, node, arrival)
        if not forming.missing:
            self._complete(name, forming)
        return await arrival

    def _complete(self, name: str, forming: _Forming) -> None:
        del self._forming[name]
        token = uuid.uuid4().hex
        self._published[token] = {}
        self._unfinished[token] = forming.world_size
        nodes = [forming.members[rank].node for rank in range(forming.world_size)]
        for member in forming.members.values():
            if not member.arrival.done():
                member.arrival.set_result((token, nodes))

    @staticmethod
    def _dismiss(forming: _Forming, reason: str) -> None:
        for member in forming.members.values():
            if not member.arrival.done():
                member.arrival.set_exception(ValueError(reason))

    async def leave(self, name: str, member: str) -> list[int]:
        """Give up waiting, and return the ranks that have not come."""
        forming = self._forming.get(name)
        if forming is None:
            return []
        missing = forming.missing
        for rank, known in list(forming.members.items()):
            if known.id == member:
                if not known.arrival.done():
                    known.arrival.set_result(None)  # nobody listens any more
                del forming.members[rank]
        if not forming.members:
            del self._forming[name]
        return missing

    async def publish(self, token: str, key: str, value: bytes) -> None:
        """Keep a value for the other members."""
        async with self._news:
            self._published.setdefault(token, {})[key] = value
            self._news.notify_all()

    async def read(self, token: str, keys: list[str]) -> dict[str, bytes]:
        """Return the values of `keys` once they are all there."""
        async with self._news:
            await self._news.wait_for(lambda: self._published.get(token, {}).keys() >= set(keys))
            known = self._published[token]
            return {key: known[key] for key in keys}

    async def finish(self, token: str) -> None:
        """Forget what the members have published, once each of them has said that it is done."""
        self._unfinished[token] -= 1
        if self._unfinished[token] == 0:
            del self._unfinished[token]
            self._published.pop(token, None)


class Declarations:
    """The actor that keeps declarations."""

    def __init__(self) -> None:
        self._declared: dict[str, Declaration] = {}

    async def declare(self, name: str, declaration: Declaration) -> bool:
        """Keep a declaration, unless there is one of this name."""
        return self._declared.setdefault(name, declaration) is declaration

    async def declaration_of(self, name: str) -> Declaration | None:
        """Return a declaration, or None."""
        return self._declared.get(name)

    async def undeclare(self, name: str) -> None:
        """Forget a declaration."""
        self._declared.pop(name, None)
