"""A call that has arrived at an actor."""

from __future__ import annotations

from typing import Any

from skate._base.serialization import loads
from skate._engine.local.client.task_context import TaskContext
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection

_NO_OPTIONS: dict[str, Any] = {"retry": False, "window": 0, "per_yield": 1}


class Incoming:
    """A call with the connection it came by."""

    __slots__ = ("call", "cancelled", "connection", "context", "loop", "name", "options", "started", "task")

    def __init__(self, call: m.Call, connection: Connection, class_name: str) -> None:
        self.call = call
        self.connection = connection
        self.cancelled = False
        self.started = 0.0
        self.context: TaskContext | None = None
        self.task: Any = None  # the asyncio task that runs it, and its loop
        self.loop: Any = None
        self.options: dict[str, Any] = loads(call.options) if call.options else _NO_OPTIONS
        self.name: str = self.options.get("name") or f"{class_name}.{call.method}"

    def fill(self, result: m.Result) -> list[m.Result]:
        """Return the same result for everything that the call returns."""
        return [result] * max(1, self.call.num_returns)
