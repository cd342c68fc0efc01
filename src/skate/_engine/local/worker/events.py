"""What a worker ran, kept until the node asks: costs the hot path one append."""

from __future__ import annotations

from collections import deque

Row = tuple[bytes, str, str, float, float, str, str]
KEEP = 10_000


class EventLog:
    """Remembers the last calls of an actor."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque(maxlen=KEEP)

    def add(self, task: bytes, name: str, started: float, ended: float, failed: str) -> None:
        """Remember a call."""
        self._rows.append(
            (task, name, "ACTOR_TASK", started, ended, "FAILED" if failed else "FINISHED", failed)
        )

    @staticmethod
    def running(task: bytes, name: str, started: float) -> Row:
        """Return the row of a call that has not ended."""
        state = "RUNNING" if started else "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
        return (task, name, "ACTOR_TASK", started, 0.0, state, "")

    def take(self) -> list[Row]:
        """Return what was remembered since the last time."""
        rows = []
        while self._rows:
            rows.append(self._rows.popleft())
        return rows
