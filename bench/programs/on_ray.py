"""What the ray engine adds to Ray: both do the same work in one process, on one Ray, turn by turn.

Ray's own pace differs by more than a tenth between two processes, so only figures of one process tell a few per cent.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import meter
import ray

import skate

BATCH = 500
TURN_SECONDS = 0.25

job = meter.Job()


def nothing() -> bytes:
    return b"ok"


class Nothing:
    def answer(self) -> bytes:
        return b"ok"


def on_ray_tasks(system: Any) -> Callable[[], object]:
    """Submit some hundred tasks, get them all."""
    task = system.remote(nothing)
    return lambda: system.get([task.remote() for _ in range(BATCH)])


def on_ray_calls(system: Any) -> Callable[[], object]:
    """Call an actor some hundred times, get all answers."""
    actor = system.remote(Nothing).remote()
    return lambda: system.get([actor.answer.remote() for _ in range(BATCH)])


def on_ray_put(system: Any) -> Callable[[], object]:
    """Put an integer and drop it."""

    def step() -> None:
        for number in range(BATCH):
            system.put(number)

    return step


def on_ray_get(system: Any) -> Callable[[], object]:
    """Get the same integer again and again."""
    reference = system.put(1)

    def step() -> None:
        for _ in range(BATCH):
            system.get(reference)

    return step


def measure(row: Callable[[Any], Callable[[], object]]) -> dict[str, float]:
    """Return how many units a second each system gets done: the median of its turns."""
    steps = {"skate": row(skate), "ray": row(ray)}
    rates: dict[str, list[float]] = {name: [] for name in steps}
    _turns(steps, rates, job.warmup)
    for taken in rates.values():
        taken.clear()
    # Twice the time of other rows, for each system: a few per cent are to be told.
    _turns(steps, rates, 4 * job.seconds)
    return {name: statistics.median(taken) for name, taken in rates.items()}


def _turns(steps: dict[str, Callable[[], object]], rates: dict[str, list[float]], seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        # Back and forth, so that nobody always runs after the other.
        for names in (list(steps), list(reversed(steps))):
            for name in names:
                rates[name].append(_turn(steps[name]))


def _turn(step: Callable[[], object]) -> float:
    done = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < TURN_SECONDS:
        step()
        done += BATCH
    return done / elapsed


if __name__ == "__main__":
    ray.init("local", num_cpus=job.cpus, include_dashboard=False)
    skate.init(engine="ray")  # takes the connection that is there
    try:
        rows = {row.__name__: row for row in (on_ray_tasks, on_ray_calls, on_ray_put, on_ray_get)}
        for system, value in measure(rows[job.row]).items():
            print(meter.MARK + json.dumps({"system": system, "row": job.row, "value": value}), flush=True)
    finally:
        skate.shutdown()
