"""Tasks: one at a time, a thousand in flight, ten thousand at once, with a large argument, in a tree, nested."""

from __future__ import annotations

from typing import Any

import meter
import numpy as np

job = meter.Job()
ray: Any = job.load()

BATCH = 1000
FAN_IN = 10


@ray.remote
def nothing() -> bytes:
    return b"ok"


@ray.remote
def first_of(array: Any) -> float:
    return float(array[0])


@ray.remote
def add(*numbers: int) -> int:
    return sum(numbers)


@ray.remote
def inner() -> bytes:
    return ray.get(nothing.remote())  # type: ignore[no-any-return]


@ray.remote
def outer() -> bytes:
    return ray.get(inner.remote())  # type: ignore[no-any-return]


def submit_and_get(count: int) -> None:
    ray.get([nothing.remote() for _ in range(count)])


def tasks_sync() -> float:
    """Submit one, get it, submit the next."""
    return job.rate(lambda: ray.get(nothing.remote()))


def tasks_async() -> float:
    """Submit a thousand, get them all."""
    return job.rate(lambda: submit_and_get(BATCH), BATCH)


def tasks_10k() -> float:
    """Submit ten thousand before asking for the first result."""
    count = 10 * BATCH
    return count / job.once(lambda: submit_and_get(BATCH), lambda: submit_and_get(count))


def task_1mb() -> float:
    """Pass an array by value: each call serialises it again."""
    count = 50
    array = np.arange(131_072, dtype=np.float64)

    def step() -> None:
        ray.get([first_of.remote(array) for _ in range(count)])

    return job.rate(step, count)


def fan_in() -> float:
    """Add 900 leaves up, ten at a time: 900 + 90 + 9 + 1 tasks, only the root fetched."""
    leaves = 900

    def step() -> None:
        level = [add.remote(1) for _ in range(leaves)]
        while len(level) > 1:
            level = [add.remote(*level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        if ray.get(level[0]) != leaves:
            raise RuntimeError(f"the tree should add up to {leaves}")

    return job.rate(step, 1000)


def tasks_nested() -> float:
    """Submit tasks that each wait for a task that waits for another."""
    count = 100

    def step() -> None:
        ray.get([outer.remote() for _ in range(count)])

    return count / job.once(lambda: ray.get(outer.remote()), step)


if __name__ == "__main__":
    job.run_on(ray, tasks_sync, tasks_async, tasks_10k, task_1mb, fan_in, tasks_nested)
