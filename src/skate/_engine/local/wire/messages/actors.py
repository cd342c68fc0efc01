"""Actors and placement groups, and the direct calls between a caller and an actor."""

from __future__ import annotations

from skate._engine.local.wire.messages.tasks import Run
from skate._engine.local.wire.messages.values import ActorOptions, Argument, Message, Result


class CreateActor(Message, tag=50):
    """Create an actor; `request` is answered when the actor has a name."""

    actor: bytes
    template: int
    args: bytes
    options: ActorOptions
    dependencies: list[tuple[int | str, bytes]] = []
    contains: list[bytes] = []
    args_object: bytes = b""
    request: int = 0
    parent: bytes = b""


class Become(Message, tag=51):
    """The node tells a worker to become an actor."""

    actor: bytes
    run: Run
    options: ActorOptions
    restarts: int = 0


class ActorWatch(Message, tag=52):
    """Tell this process where an actor is, now and whenever that changes."""

    actor: bytes


class ActorUpdate(Message, tag=53):
    """An actor's state: PENDING, ALIVE, RESTARTING or DEAD."""

    actor: bytes
    state: str
    address: str = ""
    incarnation: int = 0
    error: bytes = b""  # serialized exception when DEAD
    reason: str = ""


class KillActor(Message, tag=54):
    """Kill an actor's process; without `no_restart` it may restart."""

    actor: bytes
    no_restart: bool = True


class ActorExit(Message, tag=55):
    """An actor ends itself (exit_actor): it is not restarted."""

    actor: bytes
    reason: str = ""


class Call(Message, tag=60):
    """Call a method of an actor."""

    task: bytes
    method: str
    args: bytes
    arguments: list[Argument] = []
    args_object: bytes = b""
    num_returns: int = 1
    group: str = ""
    options: bytes = b""  # serialized rare options: retries, generator back-pressure
    caller: int = 0
    attempt: int = 0
    depth: int = 0
    taken: int = 0  # what the reader of a generator has taken of an earlier attempt


class Reply(Message, tag=61):
    """What a method returned."""

    task: bytes
    results: list[Result]
    retry: bool = False
    count: int = 0


class ReplyVia(Message, tag=62):
    """A reply that takes the way through the node, because the node must know something first."""

    caller: int
    reply: Reply
    item: int = 0
    limited: bool = False


class CancelCall(Message, tag=63):
    """Cancel a call of an actor."""

    task: bytes
    recursive: bool = True


class CallItem(Message, tag=64):
    """A generator method has made its next object; a limited one wants to know when it is taken."""

    task: bytes
    index: int
    result: Result
    limited: bool = False


class Introduce(Message, tag=65):
    """First message of a caller on an actor's socket."""

    caller: int


class CreateGroup(Message, tag=70):
    """Reserve bundles of resources."""

    request: int
    group: bytes
    bundles: list[dict[str, float]]
    strategy: str
    name: str = ""
    namespace: str = ""
    detached: bool = False
    labels: list[dict[str, str]] = []


class RemoveGroup(Message, tag=71):
    """Give a placement group's resources back and end what runs in it."""

    group: bytes


class WatchGroup(Message, tag=72):
    """Make object `id` ready with `data` once the group is reserved."""

    group: bytes
    id: bytes
    data: bytes
