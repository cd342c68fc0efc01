"""Commands of the state machine to the node's process, and its events; never sent on the wire."""

from skate._engine.local.wire.messages.values import Message


class StartWorker(Message, tag=90):
    """Start a worker process."""

    number: int
    environment: str
    job: bytes
    template: int = 0  # the preloaded template to fork it from, 0 for none


class MakeTemplate(Message, tag=97):
    """Make a preloaded template for the workers of a job and an environment."""

    number: int
    environment: str
    job: bytes
    modules: list[str]


class DropTemplate(Message, tag=98):
    """End a preloaded template, and its workers."""

    number: int


class KillProcess(Message, tag=91):
    """Kill a worker process; gently first when `grace` seconds are given."""

    number: int
    grace: float = 0.0


class DeleteSegment(Message, tag=92):
    """Remove a segment from shared memory."""

    segment: str


class Spill(Message, tag=93):
    """Write a segment to disk."""

    id: bytes
    segment: str
    size: int


class Restore(Message, tag=94):
    """Read a spilled object back to a new segment."""

    id: bytes
    segment: str
    size: int


class DeleteSpilled(Message, tag=95):
    """Remove a spilled object from disk."""

    id: bytes


class Stop(Message, tag=96):
    """End the node."""

    reason: str = ""


class WorkerGone(Message, tag=100):
    """A process has ended, closed its socket, or could not be started."""

    number: int
    code: int | None = None  # exit code, negative for a signal
    last_lines: list[str] = []
    last_begun: bytes | None = (
        None  # the last attempt of a task that it started, b"" for none, None if unknown
    )
    refused: str = ""  # why the system refused to start a process


class MemoryPressure(Message, tag=104):
    """The memory usage exceeds the threshold."""

    used: int
    total: int
    where: str  # the folder of the control group that was measured, "" for the machine
    threshold: float
    sizes: dict[int, int]  # bytes of each process and its descendants, by number
    others: list[tuple[str, int]]  # the largest other processes, and their bytes


class Spilled(Message, tag=101):
    """A spill has ended."""

    id: bytes
    error: str = ""


class Restored(Message, tag=102):
    """A restore has ended."""

    id: bytes
    segment: str
    error: str = ""
    no_room: bool = False  # shared memory is full, and the copy on disk is intact


class EnvironmentReady(Message, tag=103):
    """A runtime environment is ready, or could not be created."""

    environment: str
    error: str = ""


class TemplateReady(Message, tag=105):
    """A preloaded template has imported its modules, and workers can be forked from it."""

    number: int


class TemplateGone(Message, tag=106):
    """A preloaded template has ended, or could not be made."""

    number: int
