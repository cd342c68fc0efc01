"""The actual contents of shared memory and the disk, to compare with the state of the node."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from skate._engine.local.session.segments import on_disk
from skate._engine.local.wire import messages as m
from tests.engine.local.state.simulation.failure import Violation

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.processes import Process
    from tests.engine.local.state.simulation.simulation import Simulation


class Memory:
    """Segments with what is written to them, who maps them, and copies on disk.

    Spilling and restoring happen one after the other, as in the real thread that does it.
    """

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self.sizes: dict[str, int] = {}  # of the segments that exist
        self.contents: dict[str, bytes] = {}  # segment -> object written to it
        self._inside: dict[str, list[bytes]] = {}  # segment -> references in what is written to it
        self.mappers: dict[str, int] = {}  # segment -> how many processes map it
        self.disk: dict[bytes, list[bytes]] = {}  # object -> references in it
        self.jobs: deque[Any] = deque()

    # ------------------------------------------------------------ processes

    def granted(self, process: Process, answer: m.Allocated, size: int) -> None:
        """A process may write to a segment."""
        if answer.size < size:
            raise Violation(f"{process} asked for {size} bytes and got {answer.size}")
        if self.mappers.get(answer.segment):
            raise Violation(f"segment {answer.segment} is written to while a process maps it")
        if answer.reused != (answer.segment in self.contents):
            raise Violation(f"segment {answer.segment}: reused={answer.reused} is not true")

    def write(self, segment: str, id: bytes, contains: list[bytes]) -> None:
        """A process has written an object."""
        self.contents[segment] = id
        self._inside[segment] = contains  # another attempt may have written the same object with others

    def map(self, process: Process, id: bytes, segment: str) -> list[bytes]:
        """A process maps a segment that the node has pinned for it; return the references in it."""
        if segment == on_disk(id.hex()):  # a spilled object, where it lies
            if id not in self.disk:
                raise Violation(f"{process} maps {self._world.name(id)} on disk, where it is not")
            self.mappers[segment] = self.mappers.get(segment, 0) + 1
            return self.disk[id]
        if segment not in self.sizes:
            raise Violation(f"{process} maps {self._world.name(id)}, whose segment {segment} is gone")
        if self.contents.get(segment) != id:
            other = self._world.name(self.contents.get(segment, b""))
            raise Violation(f"{process} maps {self._world.name(id)} and finds {other}")
        self.mappers[segment] = self.mappers.get(segment, 0) + 1
        return self._inside[segment]

    def unmap(self, process: Process, segment: str) -> None:
        """A process does not map a segment any more."""
        self.mappers[segment] -= 1
        if not self.mappers[segment]:
            del self.mappers[segment]

    def process_gone(self, process: Process) -> None:
        """The kernel unmaps everything."""
        for segment, _, _ in process.mapped.values():
            self.unmap(process, segment)

    # ------------------------------------------------------------ the node's commands

    def created(self, segment: str, size: int) -> None:
        """The node has handed out a new segment."""
        self.sizes[segment] = size

    def delete(self, segment: str) -> None:
        """Remove a segment; who maps it keeps its pages."""
        if segment not in self.sizes:
            raise Violation(f"segment {segment} is deleted twice")
        del self.sizes[segment]
        self.contents.pop(segment, None)
        self._inside.pop(segment, None)

    def do_next(self, *, fails: bool) -> Any:
        """Carry out the oldest Spill, Restore or DeleteSpilled; return what to tell the node."""
        job = self.jobs.popleft()
        id = job.id
        if isinstance(job, m.DeleteSpilled):
            self.disk.pop(id, None)
            return None
        if isinstance(job, m.Spill):
            if self.contents.get(job.segment) != id:
                raise Violation(
                    f"{self._world.name(id)} is spilled from {job.segment}, which does not hold it"
                )
            if fails:
                return m.Spilled(id, "no space left on device")
            if self.mappers.get(on_disk(id.hex())):
                raise Violation(f"{self._world.name(id)} is spilled to a file that a process maps")
            self.disk[id] = self._inside[job.segment]
            return m.Spilled(id)
        if job.segment not in self.sizes:
            raise Violation(f"{self._world.name(id)} is restored to {job.segment}, which does not exist")
        if id not in self.disk:
            return m.Restored(id, job.segment, "no such file")
        if fails:
            no_room = self._world.choices.chance(50)
            return m.Restored(id, job.segment, "no room" if no_room else "input/output error", no_room)
        self.write(job.segment, id, self.disk[id])
        return m.Restored(id, job.segment)
