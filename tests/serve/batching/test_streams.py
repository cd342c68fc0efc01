"""Batches whose answers are streams."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skate.serve.batching import batch
from skate.serve.exceptions import RayServeException
from tests.serve.batching.recorder import LONG, settled


async def collected(answers: AsyncIterator[Any]) -> list[Any]:
    return [answer async for answer in answers]


class TestStreams:
    async def test_each_caller_iterates_over_its_own_results(self) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def count(starts: list[int], step: list[int]) -> AsyncIterator[list[int]]:
            for i in range(3):
                yield [start + i * by for start, by in zip(starts, step, strict=True)]

        # The calls count when they are made, not when their results are asked for.
        first, second = count(1, 1), count(10, step=10)
        assert await collected(first) == [1, 2, 3]
        assert await collected(second) == [10, 20, 30]

    async def test_results_come_while_the_batch_still_runs(self) -> None:
        gate = asyncio.Event()

        @batch(max_batch_size=1)
        async def slow(items: list[int]) -> AsyncIterator[list[int]]:
            yield items
            await gate.wait()
            yield items

        answers = slow(3)
        assert await anext(answers) == 3
        gate.set()
        assert await collected(answers) == [3]

    async def test_a_method_can_stream(self) -> None:
        class Model:
            @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
            async def spell(self, words: list[str]) -> AsyncIterator[list[Any]]:
                for i in range(max(map(len, words))):
                    yield [word[i] if i < len(word) else StopIteration for word in words]

        model = Model()
        words = await asyncio.gather(collected(model.spell("ab")), collected(model.spell("cdef")))
        assert ["".join(word) for word in words] == ["ab", "cdef"]

    @pytest.mark.parametrize(
        "stop", [StopIteration, StopAsyncIteration, StopIteration(), StopAsyncIteration()]
    )
    async def test_a_stop_ends_the_stream_of_its_caller_alone(self, stop: Any) -> None:
        finished = False

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def stream(items: list[int]) -> AsyncIterator[list[Any]]:
            nonlocal finished
            yield items
            yield [items[0], stop]
            yield [stop, 99]
            finished = True

        first, second = await asyncio.gather(collected(stream(1)), collected(stream(2)))
        assert (first, second) == ([1, 1], [2])
        await settled()
        assert finished  # those who have all they wanted have not left

    async def test_an_error_reaches_all_that_still_iterate(self) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def stream(items: list[int]) -> AsyncIterator[list[Any]]:
            yield items
            yield [StopIteration, 2]
            raise ZeroDivisionError

        first, second = stream(1), stream(2)
        assert await collected(first) == [1]
        assert [await anext(second), await anext(second)] == [2, 2]
        with pytest.raises(ZeroDivisionError):
            await anext(second)
        with pytest.raises(StopAsyncIteration):
            await anext(second)

    async def test_an_exception_among_the_results_ends_the_stream_of_its_caller(self) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def stream(items: list[int]) -> AsyncIterator[list[Any]]:
            yield [ValueError("bad item"), 1]
            yield [0, 2]

        bad, good = stream(1), stream(2)
        with pytest.raises(ValueError, match="bad item"):
            await anext(bad)
        assert await collected(good) == [1, 2]

    async def test_a_wrong_number_of_results_is_an_error_with_both_numbers(self) -> None:
        closed = False

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def stream(items: list[int]) -> AsyncIterator[list[int]]:
            nonlocal closed
            try:
                yield items
                yield [*items, 3]
            finally:
                closed = True

        for answers in (stream(1), stream(2)):
            await anext(answers)
            with pytest.raises(RayServeException, match="with 2 items and returned 3 results"):
                await anext(answers)
        assert closed

    async def test_the_callers_of_a_failed_batch_have_tracebacks_of_their_own(self) -> None:
        @batch(max_batch_size=3, batch_wait_timeout_s=LONG)
        async def stream(items: list[int]) -> AsyncIterator[list[int]]:
            raise ZeroDivisionError
            yield items

        async def depth(answers: AsyncIterator[int]) -> int:
            with pytest.raises(ZeroDivisionError) as caught:
                await anext(answers)
            return len(caught.traceback)

        depths = [await depth(answers) for answers in [stream(i) for i in range(3)]]
        assert len(set(depths)) == 1

    async def test_a_batch_goes_on_for_those_who_stay(self) -> None:
        gate = asyncio.Event()

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def stream(items: list[int]) -> AsyncIterator[list[int]]:
            yield items
            await gate.wait()
            yield items

        goes, stays = stream(1), stream(2)
        assert await anext(goes) == 1
        await goes.aclose()
        gate.set()
        assert await collected(stays) == [2, 2]

    @pytest.mark.parametrize("how", ["closed", "cancelled", "dropped", "never started"])
    async def test_a_batch_that_nobody_listens_to_is_cancelled(self, how: str) -> None:
        ended = asyncio.Event()

        @batch(max_batch_size=1)
        async def endless(items: list[int]) -> AsyncIterator[list[int]]:
            try:
                while True:
                    yield items
                    await asyncio.sleep(0)
            finally:
                ended.set()

        answers = endless(1)
        match how:
            case "closed":
                await anext(answers)
                await answers.aclose()
            case "cancelled":
                reader = asyncio.create_task(collected(answers))
                await settled()
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
            case "dropped":
                await anext(answers)
            case "never started":
                await settled()
        del answers
        gc.collect()
        await asyncio.wait_for(ended.wait(), 10)
