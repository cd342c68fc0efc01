"""A copy of the node's history of tasks, which the dashboard searches instead of the node.

The node sends only what has finished since the last question. If more finishes in a second than one answer has, the
oldest are left out and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from skate._api.observer import Observer
from skate.dashboard._node import Node
from skate.util.state._rows import task_state
from skate.util.state.common import TaskState

__all__ = ["Task", "TaskHistory"]

MOST_KEPT: Final = 20_000
CHUNK: Final = 1000  # rows of tasks, and of calls, in one answer of the node
MOST_CHUNKS: Final = 32  # of an update, which reads all that the node has


class Task:
    """One attempt of a task; its row is made when it is needed."""

    __slots__ = ("_node_id", "_row", "raw")

    def __init__(self, raw: dict[str, Any], node_id: str) -> None:
        self.raw = raw
        self._node_id = node_id
        self._row: TaskState | None = None

    @property
    def row(self) -> TaskState:
        """The row of the state API."""
        if self._row is None:
            self._row = task_state(self.raw, self._node_id)
        return self._row


class TaskHistory:
    """The tasks and actor calls of the session, at most a second old.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._generation = 0
        self._reset()

    def _reset(self) -> None:
        self.finished: deque[Task] = deque(maxlen=MOST_KEPT)
        self.unfinished: list[Task] = []
        self.total = 0
        self.dropped = 0
        self._at = (0, 0)
        self._updated = float("-inf")

    async def update(self) -> TaskHistory:
        """Read what is new, unless that was done within the last second."""
        await self._node.share("tasks", self._update)
        return self

    async def _update(self) -> None:
        if self._generation != self._node.generation:
            self._generation = self._node.generation
            self._reset()
        # One answer per second: all that has finished while no page was open is read at once.
        now = time.monotonic()
        passed, self._updated = now - self._updated, now
        for _ in range(int(min(max(passed, 1), MOST_CHUNKS))):
            answer = await self._node.ask(self._ask)
            if answer is None:
                await self._node.ask(self._read_all)
                return
            if self._take(answer):
                return
            # More has finished than was read: continue with the newest in a second.
            newest = answer["tasks_total"] - CHUNK, answer["calls_total"] - CHUNK
        self._at = max(self._at[0], newest[0]), max(self._at[1], newest[1])

    def _ask(self, node: Observer) -> dict[str, Any] | None:
        return node.task_events(*self._at, CHUNK)

    def _take(self, answer: dict[str, Any]) -> bool:
        """Add an answer; return whether there is nothing more to read."""
        node_id = self._node.observer.node_id
        new = sorted(answer["finished"], key=lambda raw: float(raw["ended"]))
        self.finished.extend(Task(raw, node_id) for raw in new)
        self.unfinished = [Task(raw, node_id) for raw in answer["unfinished"]]
        self._at = answer["tasks_at"], answer["calls_at"]
        everything = answer["tasks_total"] + answer["calls_total"]
        self.dropped = everything - len(self.finished)
        self.total = everything + answer["unfinished_total"]
        return self._at == (answer["tasks_total"], answer["calls_total"])

    def _read_all(self, node: Observer) -> None:
        """Read all tasks of an engine that does not report events."""
        from skate.util.state._rows import rows
        from skate.util.state.common import StateResource

        found = rows(node.engine, StateResource.TASKS)
        kept = [row for row in found[-MOST_KEPT:] if isinstance(row, TaskState)]
        # Ray gives neither worker nor node for the creation of an actor, but the process.
        nodes = {row.worker_pid: row.node_id for row in kept if row.node_id}
        every = [_task_of(row, nodes.get(row.worker_pid)) for row in sorted(kept, key=_end_time)]
        self.finished = deque((task for task in every if task.raw["ended"]), MOST_KEPT)
        self.unfinished = [task for task in every if not task.raw["ended"]]
        self.total, self.dropped = len(found), len(found) - len(every)

    def newest(self) -> Iterator[Task]:
        """Yield the unfinished tasks, and then the finished ones, the newest first."""
        yield from self.unfinished
        yield from reversed(self.finished)

    def find(self, id: str) -> Task | None:
        """Return the latest attempt of a task, or None."""
        found = [task for task in self.newest() if _id(task) == id]
        return max(found, key=lambda task: task.row.attempt_number) if found else None


def _id(task: Task) -> str:
    id = task.raw["task_id"]
    return str(id) if isinstance(id, str) else id.hex()


def _end_time(row: TaskState) -> float:
    return row.end_time_ms or row.start_time_ms or row.creation_time_ms or 0.0


def _task_of(row: TaskState, node_id: str | None) -> Task:
    task = Task(
        {
            "task_id": row.task_id,
            "name": row.name,
            "type": row.type,
            "state": row.state,
            "started": (row.start_time_ms or 0) / 1000,
            "ended": (row.end_time_ms or 0) / 1000,
            "worker_id": f"{node_id} {row.worker_pid}",
            "worker_pid": row.worker_pid,
        },
        node_id or "",
    )
    task._row = row
    return task
