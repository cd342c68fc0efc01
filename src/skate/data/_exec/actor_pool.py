"""The actor pool of an operator: how many actors it has, and which actor gets the next task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# The pool releases an actor after this many consecutive tasks ended with at least half of the pool idle.
IDLE_TASKS_BEFORE_RELEASE = 20


@dataclass(eq=False, slots=True)
class PoolActor:
    """An actor of a pool."""

    handle: Any = None  # None while the actor starts
    tasks: int = 0


@dataclass(eq=False, slots=True)
class ActorPool:
    """Between `min_size` and `max_size` actors, each with up to `tasks_per_actor` tasks at a time.

    Attributes:
        work: The work that the actors do.
        options: Options of the actors, such as resources and runtime environment.
        options_fn: Returns further options each time an actor starts.
        max_start_failures: How many actors may fail to start one after another; -1 for any number.
        start_failures: How many actors have failed to start since the last one that did.
    """

    work: Any
    min_size: int
    max_size: int
    initial_size: int
    tasks_per_actor: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    options_fn: Any = None
    max_start_failures: int = 0
    start_failures: int = 0
    members: list[PoolActor] = field(default_factory=list)
    started: bool = False
    idle_tasks: int = 0  # consecutive tasks that ended with at least half of the pool idle

    def has_room(self) -> bool:
        """Return whether an actor can take a task."""
        return any(
            member.handle is not None and member.tasks < self.tasks_per_actor for member in self.members
        )

    def assign(self, task: Any) -> None:
        """Assign a task to the actor with the fewest tasks."""
        member = min(
            (member for member in self.members if member.handle is not None), key=lambda member: member.tasks
        )
        member.tasks += 1
        task.actor = member

    def release(self, task: Any) -> None:
        """Record that a task has ended."""
        task.actor.tasks -= 1
        self.idle_tasks = (
            self.idle_tasks + 1
            if 2 * sum(member.tasks > 0 for member in self.members) <= len(self.members)
            else 0
        )

    def count_missing(self, waiting: int) -> int:
        """Return how many actors to start while `waiting` items wait."""
        least = self.min_size if self.started else self.initial_size
        self.started = True
        if len(self.members) < least:
            return least - len(self.members)
        starting = sum(member.handle is None for member in self.members)
        if waiting and not starting and not self.has_room() and len(self.members) < self.max_size:
            return 1
        return 0

    def is_starting(self) -> bool:
        """Return whether the pool has actors and all of them are still starting."""
        return bool(self.members) and all(member.handle is None for member in self.members)

    def remove_idle(self, all_tasks_started: bool) -> list[PoolActor]:
        """Remove the actors that are no longer needed from the pool, and return them.

        Args:
            all_tasks_started: The operator will start no further task.
        """
        idle = [member for member in self.members if member.handle is not None and member.tasks == 0]
        if not all_tasks_started:
            if self.idle_tasks < IDLE_TASKS_BEFORE_RELEASE or len(self.members) <= self.min_size:
                return []
            idle = idle[:1]
            self.idle_tasks = 0
        for member in idle:
            self.members.remove(member)
        return idle
