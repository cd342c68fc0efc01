"""Let many calls wait in one actor without a thread for any of them.

Shows an asyncio actor whose calls run side by side, groups of methods with limits of their own, and references that
are awaited, inside an actor and in the driver.

Prints:

    all 20 left when the last had come
    6 downloads, never more than 2 at once: True
    pages: 0 1 4 9 16 25
"""

# needs: core

import asyncio

import ray


@ray.remote
class Meeting:
    """Holds everyone until the last one is there."""

    def __init__(self, size):
        self.size = size
        self.present = 0
        self.complete = asyncio.Event()

    async def join(self):
        self.present += 1
        if self.present == self.size:
            self.complete.set()
        await self.complete.wait()
        return self.present


@ray.remote
def render(page):
    return page * page


@ray.remote(concurrency_groups={"download": 2, "report": 1})
class Site:
    """Downloads two pages at a time, and answers questions meanwhile."""

    def __init__(self):
        self.running = self.most = 0

    @ray.method(concurrency_group="download")
    async def download(self, page):
        self.running += 1
        self.most = max(self.most, self.running)
        content = await render.remote(page)
        self.running -= 1
        return content

    @ray.method(concurrency_group="report")
    async def most_at_once(self):
        return self.most


async def main():
    meeting = Meeting.options(max_concurrency=20).remote(20)
    present = await asyncio.gather(*(meeting.join.remote() for _ in range(20)))
    print(f"all {len(present)} left when the last had come" if set(present) == {20} else present)

    site = Site.remote()
    pages = await asyncio.gather(*(site.download.remote(page) for page in range(6)))
    print(f"{len(pages)} downloads, never more than 2 at once:", await site.most_at_once.remote() <= 2)
    print("pages:", *pages)


ray.init()
asyncio.run(main())
