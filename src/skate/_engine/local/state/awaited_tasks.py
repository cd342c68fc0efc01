"""Tasks that blocked workers wait for: they run before older ones.

Otherwise every queued task that submits tasks and waits for them would start, and keep a process, before the first of
them could end. The numbers of these tasks are negative, those of others positive; the lowest runs first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.object_ref import PENDING
from skate._engine.common.states import QUEUED, WAITING
from skate._engine.local.state.records import SchedulingClass, Task

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

SPAN = 1000  # tasks at each end of a queue that are looked at: a queue may have a million


class AwaitedTasks:
    """Moves the tasks that blocked workers wait for to the front of their queues."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._first = 0  # the lowest number of a task

    def put_first(self, objects: Iterable[bytes]) -> None:
        """Let the tasks that create these objects, and those that their arguments wait for, run before others."""
        awaited = self._find(objects)
        self._first -= len(awaited)
        by_class: dict[SchedulingClass, set[Task]] = {}
        for number, task in enumerate(awaited, self._first):
            task.sequence = number
            if task.state is QUEUED:
                by_class.setdefault(task.template.cls, set()).add(task)
        for cls, tasks in by_class.items():
            _move_to_front(cls.queue, tasks)

    def _find(self, objects: Iterable[bytes]) -> list[Task]:
        """Return the tasks that have not started."""
        table, known = self._machine.tasks.table, self._machine.directory.objects
        found: dict[Task, None] = {}
        ahead = [ids.task_of(id) for id in objects]
        ahead.reverse()
        while ahead:
            task = table.get(ahead.pop())
            if task is None or task in found or task.sequence < 0 or task.state not in (QUEUED, WAITING):
                continue
            found[task] = None
            if task.state is WAITING:
                pending = [id for _, id in task.dependencies if id in known and known[id].state == PENDING]
                ahead += map(ids.task_of, pending)
        return list(found)


def insert_in_front(queue: deque[Task], task: Task) -> None:
    """Insert a task at the front of a queue, but after tasks that blocked workers wait for and that come before it."""
    number = min(task.sequence, 0)
    before = takewhile(lambda other: other.sequence < number, islice(queue, SPAN))
    queue.insert(sum(1 for _ in before), task)


def _move_to_front(queue: deque[Task], tasks: set[Task]) -> None:
    """Move tasks to the front of their queue. They were submitted a moment ago, so they are at its end."""
    passed: list[Task] = []
    moved: list[Task] = []
    for _ in range(min(len(queue), SPAN + len(tasks))):
        task = queue.pop()
        (moved if task in tasks else passed).append(task)
        if len(moved) == len(tasks):
            break
    queue.extend(reversed(passed))
    queue.extendleft(sorted(moved, key=lambda task: -task.sequence))
