"""The drop-in for `multiprocessing.Pool` that both systems carry."""

from __future__ import annotations

import importlib

import meter

job = meter.Job()
ray = job.load()

ITEMS = 10_000


def square(x: int) -> int:
    return x * x


def pool_map() -> float:
    """Map a trivial function over ten thousand items with the default chunks."""
    pool_class = importlib.import_module(f"{job.system}.util.multiprocessing").Pool
    with pool_class(processes=job.cpus) as pool:

        def step() -> None:
            if pool.map(square, range(ITEMS))[-1] != square(ITEMS - 1):
                raise RuntimeError("the last square is wrong")

        return job.rate(step, ITEMS)


if __name__ == "__main__":
    job.run_on(ray, pool_map)
