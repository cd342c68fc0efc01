"""The records of the state machine: processes, tasks, objects, actors, groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from skate._base.accelerators import DEVICE_VARIABLES
from skate._engine.common.feasibility import add_requests
from skate._engine.common.resources import Grant, Pool, Request
from skate._engine.common.states import PENDING_CREATION, WAITING
from skate._engine.local.wire.messages import ActorOptions, Consumed, TaskTemplate

HOST = 0  # the number of the node process itself; messages to it are commands

# States of a worker.
STARTING = "STARTING"
IDLE = "IDLE"
LEASED = "LEASED"
ACTOR = "ACTOR"
LEAVING = "LEAVING"


class Peer:
    """A connected process: a driver or a worker."""

    __slots__ = (
        "actor",
        "address",
        "blocked",
        "defined",
        "ended",
        "environment",
        "exit_code",
        "for_devices",
        "grant",
        "head_since",
        "holds",
        "idle_since",
        "info",
        "is_driver",
        "job",
        "killed",
        "lease",
        "number",
        "over_memory",
        "pid",
        "pins",
        "preloaded",
        "said_goodbye",
        "segments",
        "started",
        "state",
        "tasks",
        "templates",
        "timed",
        "waiting_on",
    )  # fmt: skip

    def __init__(self, number: int, *, is_driver: bool, job: bytes, environment: str = "") -> None:
        self.number = number
        self.is_driver = is_driver
        self.job = job
        self.environment = environment
        self.for_devices = False  # of a worker: whether it runs tasks that use accelerators
        self.preloaded = 0  # of a worker: the preloaded template that it was to be forked from, 0 for none
        self.pid = 0
        self.address = ""
        self.state = STARTING
        self.started = 0.0
        self.ended = 0.0
        self.exit_code: int | None = None
        self.idle_since = 0.0
        self.info: dict[str, object] = {}
        self.holds: set[bytes] = set()
        self.pins: dict[bytes, int] = {}
        self.segments: set[str] = set()  # allocated, not yet part of an object
        self.templates: dict[int, Template] = {}  # of a submitter, by its own numbers
        self.defined: set[int] = set()  # of a worker: templates that it has received
        self.tasks: dict[bytes, Task] = {}  # of a worker: its tasks, in order
        self.lease: SchedulingClass | None = None
        self.grant: Grant | None = None
        self.head_since = 0.0
        self.blocked = 0
        self.waiting_on: dict[bytes, list[bytes]] = {}  # blocked task -> objects
        self.timed: set[bytes] = set()  # blocked tasks with a time-out
        self.actor: Actor | None = None
        self.killed = ""  # why the node killed it, if it did
        self.over_memory = ""  # of a process killed because memory ran out: the usage
        self.said_goodbye = False  # of a worker: whether it announced its end

    @property
    def key(self) -> Key:
        """The kind of worker; workers of one kind are interchangeable."""
        return (self.job, self.environment, self.for_devices)

    def describe(self) -> str:
        """Return a description of the process for errors."""
        if self.is_driver:
            return f"the driver (pid {self.pid})"
        if self.actor is not None:
            return f"the actor {self.actor.options.name or self.actor.class_name} (pid {self.pid})"
        return f"a worker (pid {self.pid})"

    def survives_job(self) -> bool:
        """Return whether the process survives the end of its job."""
        return self.actor is not None and self.actor.options.detached


# Workers are interchangeable within a job, an environment, and whether they may use accelerators, because a
# process that has initialized its devices cannot use others.
Key = tuple[bytes, str, bool]


class SchedulingClass:
    """Tasks with the same request in the same place, which are interchangeable for the scheduler."""

    __slots__ = ("bundle", "environment", "group", "job", "key", "leased", "queue", "request")

    def __init__(self, job: bytes, environment: str, request: Request, group: bytes, bundle: int) -> None:
        self.job = job
        self.environment = environment
        self.key: Key = (job, environment, any(name in DEVICE_VARIABLES for name in request))
        self.request = request
        self.group = group
        self.bundle = bundle
        self.queue: deque[Task] = deque()
        self.leased: dict[int, Peer] = {}


class Template:
    """A submitter's template with its number and class, and the reason if it can never run."""

    __slots__ = ("cls", "impossible", "mean", "number", "per_worker", "samples", "spec")

    def __init__(self, number: int, spec: TaskTemplate, cls: SchedulingClass, impossible: str) -> None:
        self.mean = 1.0  # running mean of seconds; an unknown function counts as slow
        self.per_worker = 1  # how many of its tasks a worker may have at a time
        self.samples = 0
        self.number = number
        self.spec = spec
        self.cls = cls
        self.impossible = impossible


# A finished task in the history: id, template, job, state, created, started, seconds, number and pid of its worker,
# attempt, description of its error (`describe_failure`), and parent.
FinishedTask = tuple[bytes, TaskTemplate, bytes, str, float, float, float, int, int, int, str, bytes]


class Task:
    """A submitted task, or the creation of an actor."""

    __slots__ = (
        "actor", "args", "args_object", "attempt", "cancelled", "children", "consumed", "contains",
        "created", "dependencies", "depth", "id", "items", "owner", "parent", "private", "retries_left",
        "sequence", "started", "state", "template", "unresolved", "worker",
    )  # fmt: skip

    def __init__(
        self,
        id: bytes,
        template: Template,
        owner: int,
        sequence: int,
        created: float,
        args: bytes = b"",
        parent: bytes = b"",
        depth: int = 0,
    ) -> None:
        self.id = id
        self.template = template
        self.owner = owner
        self.sequence = sequence
        self.created = created
        self.args = args
        self.args_object = b""
        self.dependencies: Sequence[tuple[int | str, bytes]] = ()
        self.contains: Sequence[bytes] = ()
        self.parent = parent
        self.private = False  # whether only its owner has its result, until others need it
        self.depth = depth
        self.unresolved = 0
        self.state = WAITING
        self.worker: Peer | None = None
        self.started = 0.0
        self.attempt = 0
        self.retries_left = template.spec.max_retries
        self.cancelled = False
        self.children: list[bytes] | None = None
        self.actor: Actor | None = None
        self.items = 0  # of a generator: objects made so far
        self.consumed: Consumed | None = None  # the progress of its reader


class Object:
    """An object of the session: its holders, and its value or the location of that.

    A node may have millions of these, so the containers that most of them do not need are created on demand.
    """

    __slots__ = (
        "contains", "data", "dependents", "holders", "id", "internal", "loading", "made", "owner", "pinned",
        "segment", "size", "spilled", "state", "waiters", "wanting",
    )  # fmt: skip

    def __init__(self, id: bytes, owner: int) -> None:
        self.id = id
        self.owner = owner
        self.state = 0
        self.data = b""
        self.segment = ""
        self.size = 0
        self.contains: Sequence[bytes] = ()
        self.holders: set[int] = set()
        self.internal = 0  # holds of tasks' arguments and of objects that contain it
        self.waiters: list[int] | None = None  # processes to notify when it is ready
        self.dependents: list[Task] | None = None  # tasks that wait for it
        self.pinned = 0  # number of mappings of its segment
        self.spilled = False  # a copy is on disk
        self.loading = False  # being spilled or restored
        self.wanting: Sequence[int] = ()  # processes that wait until it is in memory
        self.made = True  # False: its id is known, but its owner has not registered it


class Actor:
    """An actor, and the data to create it again."""

    __slots__ = (
        "class_name", "created", "creation", "ended", "error", "handle", "id", "incarnation", "job", "no_restart",
        "options", "owner", "pid", "reason", "repr", "restarts", "state", "template", "watchers", "worker",
    )  # fmt: skip

    def __init__(self, id: bytes, options: ActorOptions, owner: int, job: bytes, handle: bytes) -> None:
        self.id = id
        self.options = options
        self.owner = owner
        self.job = job
        self.handle = handle  # id of the object whose holders are the processes with handles
        self.state = PENDING_CREATION
        self.worker: Peer | None = None
        self.creation: Task | None = None
        self.template: Template | None = None
        self.incarnation = 0
        self.restarts = 0
        self.no_restart = False
        self.watchers: set[int] = set()
        self.error = b""
        self.reason = ""
        self.class_name = ""
        self.repr = ""
        self.pid = 0
        self.created = 0.0
        self.ended = 0.0


class Group:
    """A placement group; each bundle becomes a pool once the group is reserved."""

    __slots__ = (
        "bundles", "created", "creator_job", "detached", "grants", "id", "impossible", "name", "namespace", "pools",
        "requests", "state", "strategy", "watchers",
    )  # fmt: skip

    def __init__(self, id: bytes, bundles: list[dict[str, float]], strategy: str, job: bytes) -> None:
        self.id = id
        self.bundles = bundles
        self.strategy = strategy
        self.creator_job = job
        self.created = 0.0
        self.requests: list[Request] = []
        self.name = ""
        self.namespace = ""
        self.detached = False
        self.state = "PENDING"
        self.grants: list[Grant] = []
        self.pools: list[Pool] = []
        self.watchers: list[tuple[bytes, bytes]] = []  # object to fulfil, and its value
        self.impossible = ""

    def total(self) -> dict[str, int]:
        """Return the sum of all bundles."""
        return add_requests(self.requests)
