"""What Dask distributed can do of the same rows, with one single-threaded process for each CPU."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any


def nothing() -> bytes:
    return b"ok"


def add_one(x: int) -> int:
    return x + 1


def square(x: int) -> int:
    return x * x


def first_of(array: Any) -> float:
    return float(array[0])


def add(*numbers: int) -> int:
    return sum(numbers)


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Plain:
    def answer(self) -> bytes:
        return b"ok"


class Asynchronous:
    async def answer(self) -> bytes:
        return b"ok"


def connect(cpus: int) -> Any:
    from distributed import Client

    return Client(n_workers=cpus, threads_per_worker=1, processes=True, dashboard_address=None)


def stand_by(cpus: int) -> None:
    with connect(cpus) as client:
        client.submit(add_one, 1).result()
        print("READY", flush=True)
        sys.stdin.read()


def measure() -> None:
    import meter

    job = meter.Job()
    with connect(job.cpus) as client:
        job.run(*tasks(job, client), *objects(job, client), *actors(job, client))


def tasks(job: Any, client: Any) -> list[Any]:
    import numpy as np
    from distributed import as_completed

    array = np.arange(131_072, dtype=np.float64)

    # Every call gets a key of its own (pure=False): otherwise Dask would answer from its memory.
    def all_of(count: int) -> None:
        client.gather([client.submit(nothing, pure=False) for _ in range(count)])

    def large(count: int) -> None:
        client.gather([client.submit(first_of, array, pure=False) for _ in range(count)])

    # What Dask offers for the purpose: its `wait`, called a thousand times, takes half a minute.
    def wait_for_each() -> None:
        for _ in as_completed([client.submit(nothing, pure=False) for _ in range(1000)]):
            pass

    def tree() -> None:
        level = [client.submit(add, 1, pure=False) for _ in range(900)]
        while len(level) > 1:
            level = [client.submit(add, *level[i : i + 10], pure=False) for i in range(0, len(level), 10)]
        level[0].result()

    def tasks_sync() -> float:
        return float(job.rate(lambda: client.submit(nothing, pure=False).result()))

    def tasks_async() -> float:
        return float(job.rate(lambda: all_of(1000), 1000))

    def tasks_10k() -> float:
        return float(10_000 / job.once(lambda: all_of(1000), lambda: all_of(10_000)))

    def task_1mb() -> float:
        return float(job.rate(lambda: large(50), 50))

    def busy_share(seconds: float) -> float:
        count = max(1, round(job.cpus / seconds))

        def step() -> None:
            client.gather([client.submit(spin, seconds, pure=False) for _ in range(count)])

        return 100 * float(job.rate(step, count)) * seconds / float(job.cpus)

    def tasks_1ms() -> float:
        return busy_share(0.001)

    def tasks_10ms() -> float:
        return busy_share(0.010)

    def wait_1k() -> float:
        return float(job.rate(wait_for_each))

    def fan_in() -> float:
        return float(job.rate(tree, 1000))

    def pool_map() -> float:
        import dask.bag

        # In eight parts, as Pool.map cuts them: `client.map` would make ten thousand tasks.
        def step() -> None:
            dask.bag.from_sequence(range(10_000), npartitions=4 * job.cpus).map(square).compute()

        return float(job.rate(step, 10_000))

    return [tasks_sync, tasks_async, tasks_10k, task_1mb, tasks_1ms, tasks_10ms, wait_1k, fan_in, pool_map]


def objects(job: Any, client: Any) -> list[Any]:
    import numpy as np

    large = 100_000_000

    def put_small() -> float:
        return float(job.rate(lambda: client.scatter(0, hash=False)))

    def get_small() -> float:
        future = client.scatter(0, hash=False)
        return float(job.rate(future.result))

    def put_large() -> float:
        array = np.ones(large, dtype=np.uint8)
        return float(large / 1e9 / job.typical(lambda: client.scatter(array, hash=False), warmup_steps=20))

    def put_10gb() -> float:
        array = np.ones(large, dtype=np.uint8)
        count = 20  # Dask copies through sockets, hot and cold alike: a fifth of the data tells as much.

        def step() -> None:
            for _ in range(count):
                client.scatter(array, hash=False)

        return float(count * large / 1e9 / job.once(lambda: client.scatter(0, hash=False), step))

    def get_large() -> float:
        made = [client.submit(np.ones, large, dtype=np.uint8, pure=False) for _ in range(4)]
        turn = itertools.cycle(made)
        return float(job.rate(lambda: next(turn).result()))

    return [put_small, get_small, put_large, put_10gb, get_large]


def actors(job: Any, client: Any) -> list[Any]:
    def call_batch(actor: Any) -> None:
        for future in [actor.answer() for _ in range(1000)]:
            future.result()

    def actor_sync() -> float:
        actor = client.submit(Plain, actor=True).result()
        return float(job.rate(lambda: actor.answer().result()))

    def actor_async() -> float:
        actor = client.submit(Plain, actor=True).result()
        return float(job.rate(lambda: call_batch(actor), 1000))

    def asyncio_actor() -> float:
        actor = client.submit(Asynchronous, actor=True).result()
        return float(job.rate(lambda: call_batch(actor), 1000))

    return [actor_sync, actor_async, asyncio_actor]


if __name__ == "__main__":
    if sys.argv[2].isdigit():
        stand_by(int(sys.argv[2]))
    else:
        measure()
