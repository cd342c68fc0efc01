"""What the records for the state API cost a program that runs many short tasks or calls of an actor.

Sessions with and without the records alternate. The folder `untracked` replaces the functions that record in the
processes of a session by one that does nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import meter

import skate
from skate.util.state import list_tasks

job = meter.Job()

BATCH = 1000
PAIRS = 12
UNTRACKED = Path(__file__).parent / "untracked"


@skate.remote
def nothing() -> bytes:
    """Return at once."""
    return b"ok"


@skate.remote
class Nothing:
    """Answers at once."""

    def call(self) -> bytes:
        """Return at once."""
        return b"ok"


def tasks_per_s() -> float:
    """Submit a thousand tasks and get their results, again and again; return the highest rate."""
    return highest_rate(lambda: skate.get([nothing.remote() for _ in range(BATCH)]))


def calls_per_s() -> float:
    """Call an actor a thousand times and get the results, again and again; return the highest rate."""
    actor = Nothing.remote()
    return highest_rate(lambda: skate.get([actor.call.remote() for _ in range(BATCH)]))


def highest_rate(step: Callable[[], object]) -> float:
    """Return the rate of the fastest batch: the difference is a few per cent, and other processes only slow a batch."""
    times = []
    begun = time.perf_counter()
    while (start := time.perf_counter()) < begun + job.warmup + job.seconds:
        step()
        times.append(time.perf_counter() - start)
    return BATCH / min(times)


def session_rate(rate: Callable[[], float], *, tracked: bool) -> float:
    """Return the rate in a session of its own."""
    os.environ["BENCH_UNTRACKED"] = "0" if tracked else "1"
    with skate.init(num_cpus=job.cpus, include_dashboard=False):
        found = rate()
        if any(row.state == "FINISHED" for row in list_tasks(limit=10)) is not tracked:
            raise RuntimeError("The records are not on and off as they have to be.")
    return found


def cost(rate: Callable[[], float]) -> float:
    """Return by how many per cent the records lower the highest rate of several sessions."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(UNTRACKED), os.environ.get("PYTHONPATH"))))
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(PAIRS):
        for tracked in (True, False) if number % 2 else (False, True):
            rates[tracked].append(session_rate(rate, tracked=tracked))
    return 100 * (1 - max(rates[True]) / max(rates[False]))


def state_tracking_tasks() -> float:
    """Return how many per cent fewer tasks run in a second."""
    return cost(tasks_per_s)


def state_tracking_calls() -> float:
    """Return how many per cent fewer calls of an actor run in a second."""
    return cost(calls_per_s)


job.run(state_tracking_tasks, state_tracking_calls)
