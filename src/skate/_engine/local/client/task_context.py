"""The task or call that runs in a thread or asyncio task of a worker."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from skate._engine.abc import RunningTask
from skate._engine.local.wire import messages as m


class TaskContext:
    """The task or call that runs in this thread or asyncio task."""

    __slots__ = (
        "attempt", "borrowed", "cancelled", "children", "depth", "exiting", "keep", "name", "resources", "task",
        "template",
    )  # fmt: skip

    def __init__(self, task: bytes, name: str, depth: int = 0) -> None:
        self.task = task
        self.name = name
        self.depth = depth
        self.attempt = 0
        self.template: m.TaskTemplate | None = None
        self.resources: dict[str, list[str]] = {}
        self.cancelled = False
        self.children: list[bytes] = []  # submitted calls and tasks, for recursive cancellation
        self.exiting = False  # whether it has called exit_actor()
        self.keep: list[Any] = []  # references inside results, until the results are sent
        self.borrowed = False  # whether it has unpickled references

    def describe(self) -> RunningTask:
        """Return the task for the engine's context."""
        template = self.template
        if template is None:
            return RunningTask(self.task, self.name, "", "", {}, False)
        return RunningTask(
            self.task,
            self.name,
            template.module,
            template.qualname,
            template.resources,
            template.capture_children,
        )


current_task: ContextVar[TaskContext | None] = ContextVar("skate_task", default=None)
