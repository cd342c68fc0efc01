"""The task or call that runs in a thread or asyncio task of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from skate._engine.abc import RunningTask
from skate._engine.local.wire import messages as m

INTERRUPT_TIMEOUT_S = 1.0  # then a cancelled task is in code that no signal interrupts


class TaskContext:
    """The task or call that runs in this thread or asyncio task."""

    __slots__ = (
        "attempt", "borrowed", "cancelled", "children", "depth", "exiting", "interrupted", "keep", "name", "resources",
        "task", "template",
    )  # fmt: skip

    def __init__(self, task: bytes, name: str, depth: int = 0) -> None:
        self.task = task
        self.name = name
        self.depth = depth
        self.attempt = 0
        self.template: m.TaskTemplate | None = None
        self.resources: dict[str, list[str]] = {}
        self.cancelled = False
        self.interrupted: threading.Event | None = None  # set when the cancelled task is interrupted
        self.children: list[bytes] = []  # submitted calls and tasks, for recursive cancellation
        self.exiting = False  # whether it has called exit_actor()
        self.keep: list[Any] = []  # references inside results, until the results are sent
        self.borrowed = False  # whether it has unpickled references

    def cancel(self) -> None:
        """Mark the task as cancelled, before it is interrupted."""
        self.cancelled = True
        self.interrupted = threading.Event()

    def note_interrupt(self) -> None:
        """Let the children be cancelled."""
        if self.interrupted is not None:
            self.interrupted.set()

    def cancel_children(self, cancel: Callable[..., None]) -> None:
        """Cancel the children after the interrupt of this task: if it waits for a child, it sees the interrupt first.

        The interrupt may take a moment, because it is deferred while the main thread reads a socket.

        Args:
            cancel: Cancels one task or call.
        """
        interrupted, children = self.interrupted, list(self.children)

        def run() -> None:
            if interrupted is not None:
                interrupted.wait(INTERRUPT_TIMEOUT_S)
            for child in children:
                cancel(child, force=False, recursive=True)

        threading.Thread(target=run, daemon=True).start()

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
