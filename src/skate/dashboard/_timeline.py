"""The timeline: the tasks and actor calls of each worker process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import QueryParams

from skate.dashboard._node import Node
from skate.dashboard._tasks import Task, TaskHistory
from skate.dashboard._topics import integer, number

__all__ = ["Timeline"]

DEFAULT_LIMIT: Final = 5000
MOST_EVENTS: Final = 20_000


class Timeline:
    """The topic /state/timeline.

    Args:
        node: The node.
        history: Its tasks.
    """

    def __init__(self, node: Node, history: TaskHistory) -> None:
        self._node = node
        self._history = history

    async def handle(self, _: Mapping[str, str], query: QueryParams) -> dict[str, Any]:
        """Return the newest events that ended after `since`, and the processes that they ran in."""
        since = number(query, "since", 0.0)
        limit = integer(query, "limit", DEFAULT_LIMIT, at_least=1, at_most=MOST_EVENTS)
        history = await self._history.update()
        found = [_event(task) for task in history.unfinished if task.raw["started"]]
        left_out = 0
        for task in reversed(history.finished):
            if task.raw["ended"] < since:
                break  # they are in the order of their ends
            if not task.raw["started"]:
                continue  # it failed before it ran
            if len(found) < limit:
                found.append(_event(task))
            else:
                left_out += 1
        found.sort(key=lambda event: float(event["start"]))
        return {
            "now": time.time(),
            "tracks": await self._tracks({event["track"]: event.pop("pid") for event in found}),
            "events": found,
            "dropped": history.dropped + left_out,
        }

    async def _tracks(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        titles: dict[str, str] = {}
        if self._node.session is not None:
            processes = await self._node.share(
                "processes", lambda: self._node.ask(lambda node: node.processes())
            )
            titles = {str(id): row["title"] for id, row in processes.items()}
        return [
            {"id": track, "pid": pid, "title": titles.get(track, "worker")} for track, pid in used.items()
        ]


def _event(task: Task) -> dict[str, Any]:
    raw = task.raw
    id = raw["task_id"]
    return {
        "id": id if isinstance(id, str) else id.hex(),
        "track": str(raw["worker_id"]),
        "pid": raw["worker_pid"],
        "name": raw["name"],
        "start": raw["started"],
        "end": raw["ended"] or None,
        "state": raw["state"],
        "kind": raw["type"],
    }
