"""Answers for observers that ask often: counts, new events, and the memory that each process holds.

An answer costs the node time in which it schedules nothing, so all lists in it are limited.
"""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from skate._base.object_ref import ERROR, PENDING
from skate._engine.common.resources import to_floats
from skate._engine.common.states import PENDING_CREATION, QUEUED, WAITING
from skate._engine.local.state import task_rows
from skate._engine.local.state.records import Group, Object, Task

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine
    from skate._engine.local.state.views import Views

Call = dict[str, Any]

MAX_WAITING = 20  # waiting tasks, actors and groups in a summary
MAX_UNFINISHED = 1000  # unfinished tasks, and unfinished calls, in an answer about events

_state_of = attrgetter("state")


class Activity:
    """Reads the machine and the recorded calls; changes nothing."""

    def __init__(self, machine: Machine, views: Views) -> None:
        self._machine = machine
        self._views = views

    # ------------------------------------------------------------ counts

    def summary(self, available: dict[str, float], store: dict[str, Any]) -> dict[str, Any]:
        """Return the resources, and the numbers of tasks, actors, workers and objects."""
        machine = self._machine
        tasks = Counter(machine.tasks.counts)
        tasks.update(self._views.call_counts)
        tasks.update(map(_state_of, filter(task_rows.is_listed, machine.tasks.table.values())))
        return {
            "total": to_floats(machine.scheduler.pool.total),
            "available": available,
            "tasks": tasks,
            "actors": Counter(map(_state_of, machine.actors.table.values())),
            "workers": sum(not peer.is_driver for peer in machine.peers.values()),
            "store": store,
            "waiting": self._waiting(),
        }

    def _waiting(self) -> list[dict[str, Any]]:
        """Return the oldest waiting tasks and actors, and the waiting placement groups."""
        machine = self._machine
        tasks = (
            task
            for task in machine.tasks.table.values()
            if task.state is QUEUED or task.state is WAITING
            if task_rows.is_unfinished(task)
        )
        found = [_waiting_row(task) for task in islice(tasks, MAX_WAITING)]
        found += [
            {"id": group.id, "name": group.name, "kind": "placement_group", "since": group.created}
            for group in islice(filter(_is_waiting, machine.groups.table.values()), MAX_WAITING)
        ]
        return found

    # ------------------------------------------------------------ events

    def task_events(self, asked: str, calls: list[Call]) -> dict[str, Any]:
        """Return the tasks and calls that finished after a position, and the unfinished ones.

        Args:
            asked: Three numbers: the positions in the histories of tasks and calls, and the most rows of each; no
                rows at all if it is 0.
            calls: The unfinished calls.
        """
        tasks_after, calls_after, limit = map(int, asked.split())
        tasks = self._machine.tasks
        past, tasks_at = _newer(tasks.history, sum(tasks.counts.values()), tasks_after, limit)
        ended, calls_at = _newer(self._views.calls, sum(self._views.call_counts.values()), calls_after, limit)
        most = MAX_UNFINISHED if limit else 0
        left = list(islice(filter(task_rows.is_listed, tasks.table.values()), most))
        return {
            "finished": [*map(task_rows.finished_row, past), *map(task_rows.call_row, ended)],
            "unfinished": [
                *map(task_rows.unfinished_row, left),
                *map(task_rows.call_row, calls[:most]),
            ],
            "unfinished_calls": Counter(call["state"] for call in calls),
            "unfinished_total": len(tasks.table) + len(calls),
            "tasks_at": tasks_at,
            "tasks_total": sum(tasks.counts.values()),
            "calls_at": calls_at,
            "calls_total": sum(self._views.call_counts.values()),
        }

    # ------------------------------------------------------------ memory

    def memory(self, limit: int) -> dict[str, Any]:
        """Return the bytes that each process holds and maps, and the largest objects with their holders."""
        machine = self._machine
        handles = machine.actors.is_handle
        objects = [obj for obj in machine.directory.objects.values() if not handles(obj.id)]
        held: dict[int, list[int]] = {number: [0, 0, 0] for number in machine.peers}
        for obj in objects:
            for number in obj.holders:
                if number in held:
                    held[number][0] += 1
                    held[number][1] += obj.size
        mapped_by: dict[bytes, list[int]] = {}
        for peer in machine.peers.values():
            for id in peer.pins:
                mapped_by.setdefault(id, []).append(peer.number)
                known = machine.directory.objects.get(id)
                if known is not None:
                    held[peer.number][2] += known.size
        largest = heapq.nlargest(limit, objects, key=attrgetter("size"))
        return {
            "processes": [[number, *sums] for number, sums in held.items()],
            "objects": [_object_row(obj, mapped_by.get(obj.id, [])) for obj in largest],
            "total": len(objects),
            "mapped": sum(obj.size for obj in objects if obj.pinned),
        }


def _is_waiting(group: Group) -> bool:
    return group.state in ("PENDING", "INFEASIBLE")


def _waiting_row(task: Task) -> dict[str, Any]:
    if task.actor is not None and task.actor.state is PENDING_CREATION:
        name = task.actor.options.name or task.actor.class_name
        return {"id": task.actor.id, "name": name, "kind": "actor", "since": task.created}
    return {"id": task.id, "name": task.template.spec.name, "kind": "task", "since": task.created}


def _newer(history: Any, total: int, after: int, limit: int) -> tuple[list[Any], int]:
    """Return the entries after a position, oldest first and at most `limit`, and the position after the last."""
    oldest = total - len(history)
    start = max(after, oldest)
    found = list(islice(history, start - oldest, start - oldest + limit))
    return found, start + len(found)


def _object_row(obj: Object, mapped_by: list[int]) -> dict[str, Any]:
    return {
        "object_id": obj.id,
        "size": obj.size,
        "state": "PENDING" if obj.state == PENDING else "ERROR" if obj.state == ERROR else "READY",
        "owner": obj.owner,
        "holders": sorted(obj.holders),
        "mapped_by": mapped_by,
        "held_by_tasks": obj.internal,
        "pinned": obj.pinned,
        "spilled": obj.spilled,
        "in_memory": bool(obj.segment),
    }
