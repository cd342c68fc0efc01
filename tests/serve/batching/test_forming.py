"""How calls become batches."""

from __future__ import annotations

import asyncio

import pytest

from skate.serve.batching import batch
from tests.serve.batching.recorder import LONG, Recorder, settled


class TestForming:
    async def test_a_full_batch_starts_without_waiting(self) -> None:
        recorder = Recorder()
        assert await asyncio.gather(*(recorder.double(i) for i in range(6))) == [0, 2, 4, 6, 8, 10]
        assert recorder.batches == [[0, 1, 2], [3, 4, 5]]

    async def test_a_batch_starts_when_its_first_item_has_waited_long_enough(self) -> None:
        @batch(max_batch_size=10, batch_wait_timeout_s=0.02)
        async def size(items: list[int]) -> list[int]:
            return [len(items)] * len(items)

        loop = asyncio.get_running_loop()
        start = loop.time()
        assert await asyncio.gather(size(1), size(2)) == [2, 2]
        assert loop.time() - start > 0.01

    async def test_without_a_wait_a_batch_takes_what_is_there(self) -> None:
        @batch(max_batch_size=10, batch_wait_timeout_s=0)
        async def size(items: list[int]) -> list[int]:
            return [len(items)] * len(items)

        assert await asyncio.gather(*(size(i) for i in range(4))) == [4] * 4
        assert await size(1) == 1

    async def test_what_comes_while_a_batch_runs_is_in_the_next(self) -> None:
        recorder = Recorder()
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(8)]
        await settled()
        assert recorder.batches == [[0, 1, 2]]
        recorder.gate.set()
        done = await asyncio.gather(*calls[:6])
        assert done == [0, 2, 4, 6, 8, 10]
        assert recorder.batches == [[0, 1, 2], [3, 4, 5]]
        for call in calls[6:]:
            call.cancel()
        await asyncio.gather(*calls[6:], return_exceptions=True)

    async def test_a_batch_whose_time_came_while_another_ran_starts_right_after_it(self) -> None:
        gate = asyncio.Event()
        batches = []

        @batch(max_batch_size=2, batch_wait_timeout_s=0.001)
        async def record(items: list[int]) -> list[int]:
            batches.append(items)
            await gate.wait()
            return items

        first = asyncio.gather(record(1), record(2))
        await settled()
        late = asyncio.create_task(record(3))
        await asyncio.sleep(0.005)
        assert batches == [[1, 2]]
        gate.set()
        assert await first == [1, 2]
        assert await late == 3

    async def test_several_batches_run_at_a_time_if_asked_to(self) -> None:
        running, most = 0, 0

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG, max_concurrent_batches=3)
        async def count(items: list[int]) -> list[int]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await settled()
            running -= 1
            return items

        assert await asyncio.gather(*(count(i) for i in range(20))) == list(range(20))
        assert most == 3

    async def test_each_object_has_batches_of_its_own(self) -> None:
        one, other = Recorder(), Recorder()
        calls = [
            one.double(1),
            other.double(2),
            one.double(3),
            other.double(4),
            one.double(5),
            other.double(6),
        ]
        assert await asyncio.gather(*calls) == [2, 4, 6, 8, 10, 12]
        assert (one.batches, other.batches) == ([[1, 3, 5]], [[2, 4, 6]])

    async def test_a_batch_takes_any_parameters_in_any_spelling(self) -> None:
        @batch(max_batch_size=4, batch_wait_timeout_s=LONG)
        async def pair(left: list[int], right: list[int], *, sep: list[str]) -> list[str]:
            return [f"{a}{s}{b}" for a, b, s in zip(left, right, sep, strict=True)]

        calls = [
            pair(1, 2, sep="-"),
            pair(3, right=4, sep="+"),
            pair(right=6, left=5, sep="*"),
            pair(7, 8, sep=":"),
        ]
        assert await asyncio.gather(*calls) == ["1-2", "3+4", "5*6", "7:8"]

    async def test_a_parameter_that_nobody_gives_keeps_its_default(self) -> None:
        seen = []

        @batch(max_batch_size=3, batch_wait_timeout_s=LONG)
        async def scaled(items: list[int], factors: list[int] | None = None) -> list[int]:
            seen.append(factors)
            return [item * factor for item, factor in zip(items, factors or [1] * len(items), strict=True)]

        assert await asyncio.gather(scaled(1), scaled(2, 10), scaled(3)) == [1, 20, 3]
        assert seen == [None, [10]]

    async def test_a_wrong_call_fails_alone_and_names_the_function(self) -> None:
        recorder = Recorder()
        with pytest.raises(TypeError, match=r"Recorder\.double\(\): missing a required argument: 'items'"):
            await recorder.double()
        with pytest.raises(TypeError, match=r"too many positional arguments"):
            await recorder.double(1, 2)
        assert recorder.batches == []

    async def test_callers_on_another_loop_have_batches_of_their_own(self) -> None:
        recorder = Recorder()

        async def elsewhere() -> list[int]:
            recorder.gate = asyncio.Event()
            recorder.gate.set()
            return await asyncio.gather(*(recorder.double(i) for i in range(3)))

        here = [asyncio.create_task(recorder.double(i)) for i in (7, 8)]
        await settled()
        assert await asyncio.to_thread(asyncio.run, elsewhere()) == [0, 2, 4]
        assert recorder.batches == [[0, 1, 2]]
        for call in here:
            call.cancel()
        await asyncio.gather(*here, return_exceptions=True)
