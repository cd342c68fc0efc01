"""What an open page of the dashboard costs a program that runs many short tasks.

The page is opened and closed many times in one session: from one session to the next, the speed of a machine changes by
more than a page costs.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import meter

import skate

job = meter.Job()

BATCH = 1000
PAIRS = 20
PATHS = (
    "/state/overview",
    "/state/tasks?limit=100",
    "/state/timeline",
)  # what the page of tasks subscribes to


@skate.remote
def nothing() -> bytes:
    """Return at once."""
    return b"ok"


@contextmanager
def page(url: str) -> Iterator[None]:
    """Read what the server sends to an open page."""
    parts = urlsplit(url)
    token = parts.query.removeprefix("token=")
    connection = HTTPConnection(parts.netloc)
    connection.connect()
    reader = threading.Thread(target=read_all, args=(connection, token), daemon=True)
    reader.start()
    try:
        yield
    finally:
        connection.sock.shutdown(socket.SHUT_RDWR)
        reader.join()
        connection.close()


def read_all(connection: HTTPConnection, token: str) -> None:
    """Subscribe to what the page shows, and read it until the connection is closed."""
    paths = "&".join(f"path={quote(path)}" for path in PATHS)
    connection.request("GET", f"/live?{paths}", headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"the dashboard answers with the status {response.status}")
    while response.read1(1 << 16):
        pass


def tasks_per_s(seconds: float) -> float:
    """Submit a thousand tasks and get their results, again and again."""
    batches = 0
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        skate.get([nothing.remote() for _ in range(BATCH)])
        batches += 1
    return batches * BATCH / (time.perf_counter() - start)


def dashboard_open() -> float:
    """Return how many per cent fewer tasks run in a second while a page is open."""
    rates: dict[bool, float] = {False: 0.0, True: 0.0}
    with skate.init(num_cpus=job.cpus, include_dashboard=True, dashboard_port=0) as session:
        tasks_per_s(job.warmup)
        for number in range(PAIRS):
            for is_open in (False, True) if number % 2 else (True, False):
                if is_open:
                    with page(session.dashboard_url):
                        rates[True] += tasks_per_s(job.seconds)
                else:
                    rates[False] += tasks_per_s(job.seconds)
    return 100 * (1 - rates[True] / rates[False])


job.run(dashboard_open)
