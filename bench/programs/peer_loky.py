"""What joblib's process executor, loky, can do of the same rows."""

from __future__ import annotations

import concurrent.futures
import sys
from typing import Any


def nothing() -> bytes:
    return b"ok"


def add_one(x: int) -> int:
    return x + 1


def square(x: int) -> int:
    return x * x


def first_of(array: Any) -> float:
    return float(array[0])


def executor(cpus: int) -> Any:
    from joblib.externals.loky import get_reusable_executor

    return get_reusable_executor(max_workers=cpus)


def stand_by(cpus: int) -> None:
    pool = executor(cpus)
    pool.submit(add_one, 1).result()
    print("READY", flush=True)
    sys.stdin.read()
    pool.shutdown(kill_workers=True)


def measure() -> None:
    import meter
    import numpy as np

    job = meter.Job()
    # Parallel brings its own executor, and loky keeps only one at a time.
    pool: Any = None if job.row == "pool_map" else executor(job.cpus)
    array = np.arange(131_072, dtype=np.float64)

    def all_of(count: int) -> None:
        for future in [pool.submit(nothing) for _ in range(count)]:
            future.result()

    def large(count: int) -> None:
        for future in [pool.submit(first_of, array) for _ in range(count)]:
            future.result()

    def wait_for_each() -> None:
        for _ in concurrent.futures.as_completed([pool.submit(nothing) for _ in range(1000)]):
            pass

    def tasks_sync() -> float:
        return job.rate(lambda: pool.submit(nothing).result())

    def tasks_async() -> float:
        return job.rate(lambda: all_of(1000), 1000)

    def tasks_10k() -> float:
        return 10_000 / job.once(lambda: all_of(1000), lambda: all_of(10_000))

    def task_1mb() -> float:
        return job.rate(lambda: large(50), 50)

    def wait_1k() -> float:
        return job.rate(wait_for_each)

    def pool_map() -> float:
        from joblib import Parallel, delayed

        with Parallel(n_jobs=job.cpus) as parallel:
            return job.rate(lambda: parallel(delayed(square)(i) for i in range(10_000)), 10_000)

    job.run(tasks_sync, tasks_async, tasks_10k, task_1mb, wait_1k, pool_map)
    if pool is not None:
        pool.shutdown(kill_workers=True)


if __name__ == "__main__":
    if sys.argv[2].isdigit():
        stand_by(int(sys.argv[2]))
    else:
        measure()
