"""What the standard library's `multiprocessing` can do of the same rows: a Pool, and managers for actors."""

from __future__ import annotations

import multiprocessing
import multiprocessing.managers
import sys
import time
from typing import Any

CONTEXT = multiprocessing.get_context()


def nothing() -> bytes:
    return b"ok"


def add_one(x: int) -> int:
    return x + 1


def square(x: int) -> int:
    return x * x


def first_of(array: Any) -> float:
    return float(array[0])


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Plain:
    def answer(self) -> bytes:
        return b"ok"


class Manager(multiprocessing.managers.BaseManager):
    pass


Manager.register("Plain", Plain)


def stand_by(cpus: int) -> None:
    with CONTEXT.Pool(cpus) as pool:
        pool.apply(add_one, (1,))
        print("READY", flush=True)
        sys.stdin.read()


def measure() -> None:
    import meter
    import numpy as np

    job = meter.Job()
    array = np.arange(131_072, dtype=np.float64)

    def all_of(pool: Any, count: int) -> None:
        for result in [pool.apply_async(nothing) for _ in range(count)]:
            result.get()

    def large(pool: Any, count: int) -> None:
        for result in [pool.apply_async(first_of, (array,)) for _ in range(count)]:
            result.get()

    def tasks_sync() -> float:
        with CONTEXT.Pool(job.cpus) as pool:
            return job.rate(lambda: pool.apply(nothing))

    def tasks_async() -> float:
        with CONTEXT.Pool(job.cpus) as pool:
            return job.rate(lambda: all_of(pool, 1000), 1000)

    def tasks_10k() -> float:
        with CONTEXT.Pool(job.cpus) as pool:
            return 10_000 / job.once(lambda: all_of(pool, 1000), lambda: all_of(pool, 10_000))

    def task_1mb() -> float:
        with CONTEXT.Pool(job.cpus) as pool:
            return job.rate(lambda: large(pool, 50), 50)

    def busy_share(seconds: float) -> float:
        count = max(1, round(job.cpus / seconds))

        def step() -> None:
            for result in [pool.apply_async(spin, (seconds,)) for _ in range(count)]:
                result.get()

        with CONTEXT.Pool(job.cpus) as pool:
            return 100 * job.rate(step, count) * seconds / job.cpus

    def tasks_1ms() -> float:
        return busy_share(0.001)

    def tasks_10ms() -> float:
        return busy_share(0.010)

    def pool_map() -> float:
        with CONTEXT.Pool(job.cpus) as pool:
            return job.rate(lambda: pool.map(square, range(10_000)), 10_000)

    def actor_sync() -> float:
        with Manager() as manager:
            actor = manager.Plain()  # type: ignore[attr-defined]
            return job.rate(actor.answer)

    def ten_actors() -> float:
        managers: list[Manager] = []

        def create(count: int) -> None:
            for _ in range(count):
                manager = Manager()
                manager.start()
                managers.append(manager)
                manager.Plain().answer()  # type: ignore[attr-defined]

        seconds = job.once(lambda: create(1), lambda: create(10))
        for manager in managers:
            manager.shutdown()
        return seconds

    job.run(
        tasks_sync, tasks_async, tasks_10k, task_1mb, tasks_1ms, tasks_10ms, pool_map, actor_sync, ten_actors
    )


if __name__ == "__main__":
    if sys.argv[2].isdigit():
        stand_by(int(sys.argv[2]))
    else:
        measure()
