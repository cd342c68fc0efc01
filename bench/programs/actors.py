"""Actors: calls one at a time and in flight, sync and asyncio, many to many, and their creation."""

from __future__ import annotations

from typing import Any

import meter

job = meter.Job()
ray: Any = job.load()

BATCH = 1000
ACTORS = 10


@ray.remote(num_cpus=0)
class Plain:
    def answer(self) -> bytes:
        return b"ok"


@ray.remote(num_cpus=0)
class Asynchronous:
    async def answer(self) -> bytes:
        return b"ok"


@ray.remote
def call_all(actors: list[Any], calls: int) -> int:
    return len(ray.get([actors[i % len(actors)].answer.remote() for i in range(calls)]))


def call_batch(actor: Any) -> None:
    ray.get([actor.answer.remote() for _ in range(BATCH)])


def actor_sync() -> float:
    """Call, get, call again."""
    actor = Plain.remote()
    return job.rate(lambda: ray.get(actor.answer.remote()))


def actor_async() -> float:
    """Make a thousand calls, get them all."""
    actor = Plain.remote()
    return job.rate(lambda: call_batch(actor), BATCH)


def asyncio_actor() -> float:
    """Make a thousand calls to a coroutine method, get them all."""
    actor = Asynchronous.remote()
    return job.rate(lambda: call_batch(actor), BATCH)


def n_to_n() -> float:
    """Let as many tasks as there are CPUs call as many actors, each task all of them in turn."""
    actors = [Plain.remote() for _ in range(job.cpus)]

    def step() -> None:
        ray.get([call_all.remote(actors, BATCH) for _ in range(job.cpus)])

    return job.rate(step, BATCH * job.cpus)


def ten_actors() -> float:
    """Create ten and hear from each; one was made before, so that the class is known."""
    alive = []

    def create(count: int) -> None:
        actors = [Plain.remote() for _ in range(count)]
        ray.get([actor.answer.remote() for actor in actors])
        alive.extend(actors)

    return job.once(lambda: create(1), lambda: create(ACTORS))


if __name__ == "__main__":
    job.run_on(ray, actor_sync, actor_async, asyncio_actor, n_to_n, ten_actors)
