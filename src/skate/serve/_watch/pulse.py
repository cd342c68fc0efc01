"""How promptly the loop of a process gets to what is due: what blocks it makes every request wait."""

from __future__ import annotations

import asyncio

import skate
from skate.serve._watch.tally import Spread, counter, gauge, histogram
from skate.util._metrics_store import store

__all__ = ["Pulse"]

_LATE = histogram("event_loop_scheduling_latency_ms", "How late a loop came to what was due.")
_LOOKS = counter("event_loop_monitoring_iterations", "How often it was looked how late a loop is.")
_TASKS = gauge("event_loop_tasks", "Tasks of a loop that are not done.")


class Pulse:
    """Tells of the one loop that a process of Serve has. On that loop.

    It has no timer of its own: `Tallies` does something at a set time anyway, while there are requests. An idle loop is
    not late, and is left asleep.

    Where Ray Serve has a loop for each, one loop answers, routes and runs the user's code here. It is told of under
    each of these names, so that whoever looks for the loop of the user's code finds it.

    Args:
        component: "proxy" or "replica".
        labels: What else to say of the process.
    """

    def __init__(self, component: str, labels: dict[str, str]) -> None:
        types = ("main", "router") if component == "proxy" else ("main", "router", "user_code")
        self._of_component = [{"component": component, "loop_type": each, **labels} for each in types]
        self._labels: list[tuple[tuple[str, str], ...]] = []

    def beat(self, late_s: float) -> None:
        """Tell how late the loop is just now."""
        if not self._labels:
            actor = skate.get_runtime_context().get_actor_id() or ""
            self._labels = [tuple(sorted({**each, "actor_id": actor}.items())) for each in self._of_component]
        spread = Spread()
        spread.add(late_s)
        _, cells = spread.take()
        tasks = len(asyncio.all_tasks())
        for labels in self._labels:
            store.add(_LATE, labels, cells)
            store.increment(_LOOKS, labels, 1)
            store.set(_TASKS, labels, tasks)
