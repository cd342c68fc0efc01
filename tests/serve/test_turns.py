"""Requests side by side, changes alone."""

from __future__ import annotations

import asyncio

from skate.serve._replica.turns import Turns


def test_a_change_waits_for_what_runs_and_holds_up_what_comes() -> None:
    async def main() -> None:
        turns = Turns()
        story: list[str] = []
        first_may_end = asyncio.Event()

        async def first() -> None:
            await turns.begin()
            story.append("first begins")
            await first_may_end.wait()
            story.append("first ends")
            turns.end()

        async def change() -> None:
            async with turns.alone():
                story.append("change")

        async def second() -> None:
            await turns.begin()
            story.append("second")
            turns.end()

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
        turns = Turns()
        try:
            async with turns.alone():
                raise ValueError
        except ValueError:
            pass
        await turns.begin()
        turns.end()

    asyncio.run(main())
