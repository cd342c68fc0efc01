"""Requests run concurrently, reconfiguration alone."""

from __future__ import annotations

import asyncio

from skate.serve._replica.read_write_lock import ReadWriteLock


def test_a_change_waits_for_what_runs_and_holds_up_what_comes() -> None:
    async def main() -> None:
        lock = ReadWriteLock()
        story: list[str] = []
        first_may_end = asyncio.Event()

        async def first() -> None:
            await lock.acquire_read()
            story.append("first begins")
            await first_may_end.wait()
            story.append("first ends")
            lock.release_read()

        async def change() -> None:
            async with lock.write():
                story.append("change")

        async def second() -> None:
            await lock.acquire_read()
            story.append("second")
            lock.release_read()

        tasks = []
        for each in (first, change, second):
            tasks.append(asyncio.ensure_future(each()))
            await asyncio.sleep(0)
        assert story == ["first begins"]
        first_may_end.set()
        await asyncio.gather(*tasks)
        assert story == ["first begins", "first ends", "change", "second"]

    asyncio.run(main())


def test_a_change_that_fails_lets_requests_go_on() -> None:
    async def main() -> None:
        lock = ReadWriteLock()
        try:
            async with lock.write():
                raise ValueError
        except ValueError:
            pass
        await lock.acquire_read()
        lock.release_read()

    asyncio.run(main())
