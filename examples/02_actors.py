"""Fetch pages through a shared limit, over connections that fail now and then.

Shows an asyncio actor that everybody waits on, a pool of actors, and methods that are tried again.
"""

import asyncio
import zlib
from collections import Counter

import skate
from skate.util import ActorPool


@skate.remote
class RateLimit:
    """Lets a number of callers in at a time; the others wait without using a thread."""

    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.inside = self.most = 0

    async def enter(self) -> None:
        await self.free.acquire()
        self.inside += 1
        self.most = max(self.most, self.inside)

    async def leave(self) -> None:
        self.inside -= 1
        self.free.release()

    async def most_at_once(self) -> int:
        return self.most


@skate.remote
class Fetcher:
    """Fetches pages (here: makes them up); the connection to one of them fails the first time."""

    def __init__(self, limit) -> None:
        self.limit = limit
        self.tries = Counter()

    @skate.method(max_task_retries=3, retry_exceptions=[ConnectionError])
    def fetch(self, page: str) -> tuple[str, int, int]:
        skate.get(self.limit.enter.remote())
        try:
            self.tries[page] += 1
            if page == "page-3" and self.tries[page] == 1:
                raise ConnectionError(f"{page} does not answer")
            return page, zlib.crc32(page.encode()), self.tries[page]
        finally:
            skate.get(self.limit.leave.remote())


def main() -> None:
    limit = RateLimit.remote(at_once=2)
    pool = ActorPool([Fetcher.remote(limit) for _ in range(4)])
    pages = [f"page-{i}" for i in range(8)]
    for page, checksum, tries in pool.map(lambda fetcher, page: fetcher.fetch.remote(page), pages):
        print(f"{page}: {checksum:08x}, after {tries} {'try' if tries == 1 else 'tries'}")
    print("at most", skate.get(limit.most_at_once.remote()), "at once")


if __name__ == "__main__":
    main()
