"""The actors of an operator: how many there should be, and who gets the next task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Member:
    """An actor of a pool."""

    handle: Any = None  # while it is None, the actor starts
    tasks: int = 0


@dataclass(eq=False, slots=True)
class Pool:
    """Between `smallest` and `largest` actors, each of which has up to `tasks_each` tasks at a time.

    Attributes:
        actor: What the actors are made of.
        options: Those of the actors: resources, runtime environment, …
        options_now: Called for further options when an actor starts.
    """

    actor: Any
    smallest: int
    largest: int
    initial: int
    tasks_each: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    options_now: Any = None
    members: list[Member] = field(default_factory=list)

    def has_room(self) -> bool:
        """Tell whether a task could be given to someone."""
        return any(member.handle is not None and member.tasks < self.tasks_each for member in self.members)

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

    def wants_more(self, waiting: int) -> int:
        """Return how many actors to start, when so many items wait."""
        if len(self.members) < self.initial:
            return self.initial - len(self.members)
        starting = sum(member.handle is None for member in self.members)
        if waiting and not starting and not self.has_room() and len(self.members) < self.largest:
            return 1
        return 0

    def idle(self) -> list[Member]:
        """Return the actors that have nothing to do."""
        return [member for member in self.members if member.handle is not None and member.tasks == 0]
