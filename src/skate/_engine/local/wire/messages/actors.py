"""Messages about actors and placement groups, and direct calls from a caller to an actor."""

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
    """Turn a worker into an actor."""

    actor: bytes
    run: Run
    options: ActorOptions
    restarts: int = 0


class ActorWatch(Message, tag=52):
    """Subscribe to the state and address of an actor."""

    actor: bytes


class ActorUpdate(Message, tag=53):
    """The state of an actor: PENDING, ALIVE, RESTARTING or DEAD."""

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
    """An actor exits by itself (exit_actor) and does not restart."""

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
    taken: int = 0  # items that the reader of a generator has taken from an earlier attempt


class Reply(Message, tag=61):
    """The results of a call."""

    task: bytes
    results: list[Result]
    retry: bool = False
    count: int = 0


class ReplyVia(Message, tag=62):
    """A reply via the node, which must register its objects first."""

    caller: int
    reply: Reply
    item: int = 0
    limited: bool = False


class CancelCall(Message, tag=63):
    """Cancel a call of an actor."""

    task: bytes
    recursive: bool = True


class CallItem(Message, tag=64):
    """The next object of a generator method; with `limited`, the reader must report consumed objects."""

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
    """Return a placement group's resources, and end the tasks and actors in it."""

    group: bytes


class WatchGroup(Message, tag=72):
    """Make object `id` ready with `data` once the group is reserved."""

    group: bytes
    id: bytes
    data: bytes
