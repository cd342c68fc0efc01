"""The task or call that user code belongs to, and its specification."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skate._engine.abc import RunningTask

if TYPE_CHECKING:
    from skate._engine.common.resources import Grant
    from skate._engine.inline.actors import Actor


@dataclass(frozen=True, slots=True)
class Spec:
    """The common part of all calls of a function with the same options, or of an actor."""

    name: str
    module: str
    qualname: str
    resources: dict[str, float]
    group: bytes = b""
    bundle: int = -1
    capture_children: bool = False
    node: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    label_choices: list[dict[str, str]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    events: bool = True  # whether the state API lists the calls

    def columns(self) -> dict[str, Any]:
        """Return the columns that the tables of tasks and actors share."""
        return {
            "placement_group_id": self.group,
            "label_selector": self.labels,
            "runtime_env": environment_text(self.environment),
        }


def environment_text(environment: dict[str, Any]) -> str:
    """Return a runtime environment as text for the state API."""
    return json.dumps({"env": environment}, sort_keys=True, default=str) if environment else ""


class Running:
    """A running task or call, as the runtime context shows it."""

    __slots__ = (
        "actor", "attempt", "cancelled", "children", "depth", "exiting", "grant", "name", "task", "template",
    )  # fmt: skip

    def __init__(self, task: bytes, name: str, template: Spec, *, actor: Actor | None = None) -> None:
        submitter = current.get()
        self.task = task
        self.name = name
        self.template = template
        self.actor = actor
        self.depth: int = 0 if submitter is None else submitter.depth + 1
        self.attempt = 0
        self.cancelled = False
        self.exiting = False  # whether it called exit_actor()
        self.children: list[bytes] = []  # submitted tasks and calls, for recursive cancellation
        self.grant: Grant | None = None

    @property
    def resources(self) -> dict[str, list[str]]:
        """The accelerators that it may use."""
        return {} if self.grant is None else self.grant.device_ids()

    def describe(self) -> RunningTask:
        """Return the task for the engine's context."""
        spec = self.template
        return RunningTask(
            self.task, self.name, spec.module, spec.qualname, spec.resources, spec.capture_children
        )

    @property
    def caller(self) -> bytes:
        """The identity for calls to actors: the calls of one caller run in order."""
        return self.task if self.actor is None else self.actor.id


DRIVER = b""  # the caller outside of tasks and actors

current: ContextVar[Running | None] = ContextVar("skate_inline_running", default=None)


def caller() -> bytes:
    """Return the identity of the calling code."""
    running = current.get()
    return DRIVER if running is None else running.caller
