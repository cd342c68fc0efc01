"""The actors of an operator: how many there should be, and who gets the next task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# An actor is let go when that many tasks in a row have found half of the pool or more idle: a lull is not the end.
IDLE_TASKS_BEFORE_RELEASE = 20


@dataclass(eq=False, slots=True)
class PoolActor:
    """An actor of a pool."""

    handle: Any = None  # while it is None, the actor starts
    tasks: int = 0


@dataclass(eq=False, slots=True)
class ActorPool:
    """Between `smallest` and `largest` actors, each of which has up to `tasks_per_actor` tasks at a time.

    Attributes:
        actor: What the actors are made of.
        options: Those of the actors: resources, runtime environment, …
        options_fn: Called for further options when an actor starts.
    """

    actor: Any
    smallest: int
    largest: int
    initial: int
    tasks_per_actor: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    options_fn: Any = None
    members: list[PoolActor] = field(default_factory=list)
    opened: bool = False
    lull: int = 0  # tasks in a row at whose end half of the pool or more was idle

    def has_room(self) -> bool:
        """Tell whether a task could be given to someone."""
        return any(
            member.handle is not None and member.tasks < self.tasks_per_actor for member in self.members
        )

    def assign(self, task: Any) -> None:
        """Give a task to the actor that has the least to do."""
        member = min(
            (member for member in self.members if member.handle is not None), key=lambda member: member.tasks
        )
        member.tasks += 1
        task.actor = member

    def release(self, task: Any) -> None:
        """Note that a task is done."""
        task.actor.tasks -= 1
        self.lull = (
            self.lull + 1 if 2 * sum(member.tasks > 0 for member in self.members) <= len(self.members) else 0
        )

    def wants_more(self, waiting: int) -> int:
        """Return how many actors to start, when so many items wait."""
        least = self.smallest if self.opened else self.initial
        self.opened = True
        if len(self.members) < least:
            return least - len(self.members)
        starting = sum(member.handle is None for member in self.members)
        if waiting and not starting and not self.has_room() and len(self.members) < self.largest:
            return 1
        return 0

    def is_opening(self) -> bool:
        """Tell whether actors start, and none is there yet."""
        return bool(self.members) and all(member.handle is None for member in self.members)

    def unneeded(self, all_tasks_started: bool) -> list[PoolActor]:
        """Return the actors to let go, and count them no longer.

        Args:
            all_tasks_started: All tasks that there will be have been started.
        """
        idle = [member for member in self.members if member.handle is not None and member.tasks == 0]
        if not all_tasks_started:
            if self.lull < IDLE_TASKS_BEFORE_RELEASE or len(self.members) <= self.smallest:
                return []
            idle = idle[:1]
            self.lull = 0
        for member in idle:
            self.members.remove(member)
        return idle
