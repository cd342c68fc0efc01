"""What the state machine has the node's process do, and what that tells it: never on the wire."""

from __future__ import annotations

from skate._engine.local.wire.messages.values import Message


class StartWorker(Message, tag=90):
    """Start a worker process."""

    number: int
    environment: str
    job: bytes


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
    """The node's work is over."""

    reason: str = ""


class WorkerGone(Message, tag=100):
    """A process is gone: its socket closed, or it was reaped; or the system refused to start it."""

    number: int
    code: int | None = None  # exit code, negative for a signal
    last_lines: list[str] = []
    last_begun: bytes | None = None  # the last run of a task that it began, b"" for none, if that is known
    refused: str = ""  # why no process could be started


class MemoryPressure(Message, tag=104):
    """More memory is in use than the threshold allows."""

    used: int
    total: int
    where: str  # the folder of the control group that is meant, "" for the machine
    threshold: float
    sizes: dict[int, int]  # bytes of each process and what it has started, by number
    others: list[tuple[str, int]]  # the largest processes besides, and their bytes


class Spilled(Message, tag=101):
    """A spill has ended."""

    id: bytes
    error: str = ""


class Restored(Message, tag=102):
    """A restore has ended."""

    id: bytes
    segment: str
    error: str = ""
    no_room: bool = False  # the error is that of shared memory, and the copy on disk is whole


class EnvironmentReady(Message, tag=103):
    """A runtime environment is there, or could not be made."""

    environment: str
    error: str = ""
