"""Objects: put and get, small ones and arrays of 100 MB."""

from __future__ import annotations

import itertools
from typing import Any

import meter
import numpy as np

job = meter.Job()
ray: Any = job.load()

BATCH = 100
LARGE = 100_000_000


@ray.remote
def make_large() -> Any:
    return np.ones(LARGE, dtype=np.uint8)


def put_small() -> float:
    """Put an integer and drop the reference."""

    def step() -> None:
        for _ in range(BATCH):
            ray.put(0)

    return job.rate(step, BATCH)


def get_small() -> float:
    """Get the same integer again and again."""
    ref = ray.put(0)

    def step() -> None:
        for _ in range(BATCH):
            ray.get(ref)

    return job.rate(step, BATCH)


def put_large() -> float:
    """Put an array and drop the reference; take the median, when all memory has been used before.

    Ray frees late and walks through its whole store before it comes back to pages it has touched, so the
    warm-up is counted in puts, enough for 10 GB, and the few cold puts after it do not weigh in the median.
    """
    array = np.ones(LARGE, dtype=np.uint8)
    return LARGE / 1e9 / job.typical(lambda: ray.put(array), warmup_steps=100)


def put_10gb() -> float:
    """Put an array a hundred times from a fresh start, each time dropping the reference."""
    array = np.ones(LARGE, dtype=np.uint8)
    count = 100

    def step() -> None:
        for _ in range(count):
            ray.put(array)

    return count * LARGE / 1e9 / job.once(lambda: ray.put(0), step)


def get_large() -> float:
    """Get arrays that other processes made, look at both ends, drop them; four in turn."""
    refs = [make_large.remote() for _ in range(4)]
    ray.wait(refs, num_returns=len(refs))
    turn = itertools.cycle(refs)

    def step() -> None:
        array = ray.get(next(turn))
        if array[0] + array[-1] != 2:
            raise RuntimeError("the array came back changed")

    return job.rate(step)


if __name__ == "__main__":
    job.run_on(ray, put_small, get_small, put_large, put_10gb, get_large)
