"""Many references at once: waiting for them one by one, and fetching a list of them."""

from __future__ import annotations

from typing import Any

import meter

job = meter.Job()
ray: Any = job.load()

WAITED = 1000
HELD = 10_000


@ray.remote
def nothing() -> bytes:
    return b"ok"


@ray.remote
def make_references() -> list[Any]:
    return [ray.put(1) for _ in range(HELD)]


def wait_1k() -> float:
    """Submit a thousand tasks and take them off the list as they finish."""

    def step() -> None:
        waiting = [nothing.remote() for _ in range(WAITED)]
        fetch = True
        while waiting:
            # Asking once to bring results here is enough; asking again costs Ray a message a reference.
            _, waiting = ray.wait(waiting, fetch_local=fetch)
            fetch = False

    return job.rate(step)


def get_10k_refs() -> float:
    """Fetch a list of references that a task put, and drop it."""
    ref = make_references.remote()

    def step() -> None:
        if len(ray.get(ref)) != HELD:
            raise RuntimeError(f"the list should hold {HELD} references")

    return job.rate(step)


if __name__ == "__main__":
    job.run_on(ray, wait_1k, get_10k_refs)
