"""The values that cross the interface between the API and the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from skate._base.exports import ActorTemplate, MethodInfo


class Table(StrEnum):
    """A table that `Engine.state` returns."""

    ACTORS = "actors"
    GROUPS = "groups"
    JOBS = "jobs"
    OBJECTS = "objects"
    RUNTIME_ENVS = "environments"
    TASKS = "tasks"
    WORKERS = "workers"


class View(StrEnum):
    """An answer that `Engine.observe` returns."""

    MEMORY_BY_PROCESS = "memory by process"
    SUMMARY = "summary"
    TASK_EVENTS = "task events"


class RunningTask(NamedTuple):
    """The task or actor call that the calling code belongs to."""

    id: bytes
    name: str
    module: str  # of the function or the actor class
    qualname: str  # of the function or the actor class; "" if it is not known
    resources: Mapping[str, float]
    captures_children: bool  # whether the tasks that it submits run in its placement group


class ActorIdentity(NamedTuple):
    """The actor that the calling code belongs to."""

    id: bytes
    class_name: str
    is_async: bool


@dataclass(frozen=True)
class EngineContext:
    """The process, the task and the actor that the calling code runs in."""

    worker: int
    job: bytes
    node: bytes
    session: str  # the session's folder, or the address of a remote cluster
    namespace: str
    labels: Mapping[str, str]  # of the node
    task: RunningTask | None  # None outside of tasks and actor calls
    actor: ActorIdentity | None  # None outside of actors
    accelerators: Mapping[str, list[str]]  # ids of the devices that the task or actor may use, by kind
    runtime_env: Mapping[str, Any]

    @property
    def function_name(self) -> str | None:
        """Module and name of the running function or method, in Ray's spelling; None outside of tasks.

        The enclosing scopes (`make.<locals>.`) are part of the name in asyncio actors only, as in Ray.
        """
        task, actor = self.task, self.actor
        if task is None or not task.qualname:
            return None
        name = task.qualname
        if actor is None or not actor.is_async:
            name = name.rsplit(".", 1)[-1]
        if actor is not None:
            name = f"{name}.{task.name.rsplit('.', 1)[-1]}"
        return f"{task.module}.{name}"


class ActorDescription(NamedTuple):
    """The properties of an actor that its handles need."""

    class_name: str
    methods: dict[str, MethodInfo]
    max_task_retries: int = 0
    max_pending_calls: int = -1
    is_unordered: bool = False

    @classmethod
    def of(cls, template: ActorTemplate) -> ActorDescription:
        """Return the description of the actors that a template creates."""
        return cls(
            template.export.name,
            template.methods,
            template.options.effective_max_task_retries,
            template.options.effective_max_pending_calls,
            template.is_unordered,
        )


class CreatedActor(NamedTuple):
    """The result of `Engine.create_actor`."""

    id: bytes
    keep: object  # keeps the actor alive while it exists; None if the actor existed before
    is_new: bool


class Handle(Protocol):
    """A handle of an actor, as engines see it."""

    _ray_class_name: str
    _ray_keep: object  # `CreatedActor.keep`, or the result of `Engine.hold_actor`
