"""Messages about the lifecycle of processes, and queries to the node."""

from enum import StrEnum

from skate._engine.local.wire.messages.values import Message


class Hello(Message, tag=1):
    """A process introduces itself: a driver, or a worker that the node started."""

    kind: str
    pid: int
    number: int = 0
    address: str = ""
    job: bytes = b""  # serialized JobInfo of a driver
    failed: str = ""  # of a worker: the error that ends it now
    refused: str = ""  # of a worker: the limit of the system that ends it now


class Welcome(Message, tag=2):
    """The node accepts a process, and assigns it a number."""

    number: int
    job: bytes
    session: str
    node_id: bytes
    namespace: str
    resources: dict[str, float]
    labels: dict[str, str] = {}
    inline_limit: int = 0
    error: str = ""


class Goodbye(Message, tag=3):
    """A process leaves on purpose: a driver with its whole job, a worker without ending what it started."""

    reason: str = ""


class Exit(Message, tag=4):
    """End a worker after its current task."""

    reason: str = ""
    code: int = 0
    at_once: bool = False


class Question(StrEnum):
    """A question that the node answers; `state/views.py` has the answers."""

    ACTORS = "actors"
    ACTOR_BY_ID = "actor by id"
    ACTOR_BY_NAME = "actor by name"
    AVAILABLE = "available"
    GROUPS = "groups"
    GROUP_BY_NAME = "group by name"
    JOBS = "jobs"
    MEMORY_BY_PROCESS = "memory by process"
    NAMED_ACTORS = "named actors"
    OBJECTS = "objects"
    OBJECT_STORE = "memory"
    RUNTIME_ENVS = "environments"
    SUMMARY = "summary"
    TASKS = "tasks"
    TASK_EVENTS = "task events"
    TOTAL = "total"
    WHY = "why"
    WORKERS = "workers"


class Ask(Message, tag=80):
    """Ask the node a question."""

    request: int
    question: Question
    subject: bytes = b""
    text: str = ""


class Answer(Message, tag=81):
    """The answer to an Ask or any message with a request number; `data` is MessagePack."""

    request: int
    data: bytes = b""
    error: bytes = b""  # serialized exception


class Events(Message, tag=82):
    """The finished calls of this worker, for the timeline and the state API."""

    rows: list[tuple[bytes, str, str, float, float, str, str]]
    request: int = 0


class SendEvents(Message, tag=83):
    """Request the Events of a worker."""

    request: int


class SendObjects(Message, tag=87):
    """Request the PrivateObjects of a process."""

    request: int


class PrivateObjects(Message, tag=88):
    """The objects that only this process knows: their ids, states and sizes."""

    request: int
    rows: list[tuple[bytes, int, int]]


class Output(Message, tag=84):
    """Lines that a worker printed."""

    name: str
    pid: int
    lines: list[str]
    error: bool = False
    dropped: int = 0  # earlier lines that the node did not send because the driver was behind


class FlushOutput(Message, tag=85):
    """Send all output of workers so far to this driver, then answer."""

    request: int
    source: int = 0  # the driver, for the node's process


class Stopped(Message, tag=86):
    """A worker has stopped at a breakpoint and waits for a debugger; sent to the driver of its job."""

    breakpoint: dict[str, str | int | float]
