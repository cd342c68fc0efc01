"""What an open dashboard costs a program that runs many short tasks."""

from __future__ import annotations

import statistics
import threading
from urllib.parse import quote
from urllib.request import Request, urlopen

import meter

import skate

job = meter.Job()

BATCH = 1000
ROUNDS = 5
PATHS = (
    "/state/overview",
    "/state/tasks?limit=100",
    "/state/timeline",
)  # what the page of tasks subscribes to


@skate.remote
def nothing() -> bytes:
    """Return at once."""
    return b"ok"


def tasks_per_s() -> float:
    """Submit a thousand tasks and get their results, again and again."""
    return job.rate(lambda: skate.get([nothing.remote() for _ in range(BATCH)]), BATCH)


def look(url: str) -> None:
    """Read what the server sends to an open page, until the session ends."""
    base, _, token = url.partition("?token=")
    paths = "&".join(f"path={quote(path)}" for path in PATHS)
    request = Request(f"{base}live?{paths}", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request) as stream:
        while stream.read1(1 << 16):
            pass


def dashboard_open() -> float:
    """Return how many per cent fewer tasks run in a second while a page is open."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for is_open, found in rates.items():
            session = skate.init(num_cpus=job.cpus, include_dashboard=is_open, dashboard_port=0)
            reader = threading.Thread(target=look, args=(session.dashboard_url,), daemon=True)
            if is_open:
                reader.start()
            found.append(tasks_per_s())
            skate.shutdown()
            if is_open:
                reader.join()
    return 100 * (1 - statistics.median(rates[True]) / statistics.median(rates[False]))


job.run(dashboard_open)
