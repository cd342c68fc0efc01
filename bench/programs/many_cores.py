"""What limits a machine with many cores: tiny tasks, tasks of a few milliseconds, and many callers and actors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import meter
import numpy as np
import psutil

job = meter.Job()
ray: Any = job.load()

CALLERS = 8
CALLS = 500
LARGE = 100_000_000
QUEUED = 200_000


@ray.remote
def nothing() -> bytes:
    return b"ok"


@ray.remote
def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@ray.remote(num_cpus=0)
class Plain:
    def answer(self) -> bytes:
        return b"ok"


@ray.remote(num_cpus=0)
class Holder:
    """Needs NumPy, as most actors do: its process imports it."""

    def __init__(self) -> None:
        self.values = np.zeros(3)

    def answer(self) -> bytes:
        return b"ok"


@ray.remote(num_cpus=0)
class Caller:
    def submit(self, count: int) -> int:
        return len(ray.get([nothing.remote() for _ in range(count)]))

    def call(self, actors: list[Any], count: int) -> int:
        return len(ray.get([actors[number % len(actors)].answer.remote() for number in range(count)]))

    def put(self, count: int) -> None:
        array = np.ones(LARGE, dtype=np.uint8)
        for _ in range(count):
            ray.put(array)


def tasks_submitters() -> float:
    """Let eight actors submit tasks that do nothing."""
    callers = [Caller.remote() for _ in range(CALLERS)]
    return job.rate(lambda: ray.get([each.submit.remote(CALLS) for each in callers]), CALLERS * CALLS)


def busy_share(seconds: float) -> float:
    """Return the share of the cores, in per cent, that tasks of some duration keep busy."""
    count = max(1, round(job.cpus / seconds))
    rate = job.rate(lambda: ray.get([spin.remote(seconds) for _ in range(count)]), count)
    return 100 * rate * seconds / job.cpus


def tasks_1ms() -> float:
    """Run tasks of 1 ms, a second of work for each core at a time."""
    return busy_share(0.001)


def tasks_10ms() -> float:
    """Run tasks of 10 ms."""
    return busy_share(0.010)


def actor_calls() -> float:
    """Let eight actors call eight others, each all of them in turn."""
    actors = [Plain.remote() for _ in range(CALLERS)]
    callers = [Caller.remote() for _ in range(CALLERS)]
    return job.rate(lambda: ray.get([each.call.remote(actors, CALLS) for each in callers]), CALLERS * CALLS)


def create(count: int) -> list[Any]:
    actors = [Holder.remote() for _ in range(count)]
    ray.get([actor.answer.remote() for actor in actors])
    return actors


def begin() -> None:
    """Create a first actor, and let a second pass: the rows are of a program that is running."""
    create(1)
    time.sleep(1)


def one_actor() -> float:
    """Create an actor and hear from it, when another one has been created before."""
    return job.once(begin, lambda: create(1))


def sixteen_actors() -> float:
    """Create sixteen actors and hear from each."""
    return job.once(begin, lambda: create(16))


def hundred_actors() -> float:
    """Create a hundred actors and hear from each."""
    return job.once(begin, lambda: create(100))


def queued_tasks() -> float:
    """Return the kilobytes that a queued task occupies in all processes, while an actor holds every CPU."""
    holder = Plain.options(num_cpus=job.cpus).remote()
    ray.get(holder.answer.remote())
    before = _kilobytes()
    queued = [nothing.remote() for _ in range(QUEUED)]
    after, last = _kilobytes(), 0.0
    while abs(after - last) > 0.01 * (after - before):  # until all of them have arrived
        time.sleep(1)
        after, last = _kilobytes(), after
    return (after - before) / len(queued)


def _kilobytes() -> float:
    """Return the memory of this process and of all below it; a page that several map counts once."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except (ProcessLookupError, FileNotFoundError):
            continue  # It ended while we looked.
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def put_from_8() -> float:
    """Put 100 MB again and again from eight actors at once, each time dropping the reference."""
    callers = [Caller.remote() for _ in range(CALLERS)]
    count = 5
    return job.rate(
        lambda: ray.get([each.put.remote(count) for each in callers]), CALLERS * count * LARGE / 1e9
    )


if __name__ == "__main__":
    job.run_on(
        ray,
        tasks_submitters,
        tasks_1ms,
        tasks_10ms,
        actor_calls,
        one_actor,
        sixteen_actors,
        hundred_actors,
        queued_tasks,
        put_from_8,
    )
