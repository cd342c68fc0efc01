"""The results that callers get, and callers that stop waiting."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from skate.serve.batching import batch
from skate.serve.exceptions import RayServeException
from tests.serve.batching.recorder import LONG, Recorder, settled


class TestResults:
    async def test_an_error_of_the_function_reaches_all_callers(self) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def fail(items: list[int]) -> list[int]:
            raise ZeroDivisionError(str(items))

        results = await asyncio.gather(fail(1), fail(2), return_exceptions=True)
        assert [repr(result) for result in results] == ["ZeroDivisionError('[1, 2]')"] * 2

    async def test_an_exception_among_the_results_is_raised_at_its_caller(self) -> None:
        @batch(max_batch_size=3, batch_wait_timeout_s=LONG)
        async def inverse(items: list[int]) -> list[float | Exception]:
            return [1 / item if item else ValueError("zero has no inverse") for item in items]

        calls = [asyncio.create_task(inverse(item)) for item in (1, 0, 2)]
        await asyncio.wait(calls)
        assert [calls[0].result(), calls[2].result()] == [1, 0.5]
        with pytest.raises(ValueError, match="zero has no inverse"):
            calls[1].result()

    async def test_a_stop_among_single_results_does_not_pass_for_a_result(self) -> None:
        @batch(max_batch_size=1)
        async def stop(items: list[int]) -> list[Any]:
            return [StopIteration(3)]

        with pytest.raises(RuntimeError, match=r"returned StopIteration\(3\)"):
            await stop(1)

    @pytest.mark.parametrize("count", [1, 3])
    async def test_a_wrong_number_of_results_is_an_error_with_both_numbers(self, count: int) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def wrong(items: list[int]) -> list[int]:
            return [0] * count

        for result in await asyncio.gather(wrong(1), wrong(2), return_exceptions=True):
            assert isinstance(result, RayServeException)
            assert f"with 2 items and returned {count} results" in str(result)

    @pytest.mark.parametrize("value", [3, None, "a", {"a": 1}, {1}, iter([1])])
    async def test_what_is_no_list_is_an_error(self, value: Any) -> None:
        @batch(max_batch_size=1)
        async def wrong(items: list[int]) -> Any:
            return value

        with pytest.raises(TypeError, match=rf"each of its 1 items, got {type(value).__name__}"):
            await wrong(1)

    async def test_an_array_or_a_tuple_is_as_good_as_a_list(self) -> None:
        import numpy as np

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def double(items: list[int]) -> Any:
            return np.array(items) * 2

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def same(items: list[int]) -> tuple[int, ...]:
            return tuple(items)

        assert await asyncio.gather(double(1), double(2)) == [2, 4]
        assert await asyncio.gather(same(1), same(2)) == [1, 2]

    async def test_a_function_that_is_cancelled_cancels_its_callers(self) -> None:
        @batch(max_batch_size=1)
        async def give_up(items: list[int]) -> list[int]:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await give_up(1)
        with pytest.raises(asyncio.CancelledError):
            await give_up(1)  # and the next batch still runs


class TestCallersThatGo:
    async def test_a_cancelled_caller_leaves_a_batch_that_forms(self) -> None:
        recorder = Recorder()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(2)]
        await settled()
        calls[0].cancel()
        calls += [asyncio.create_task(recorder.double(i)) for i in (2, 3)]
        assert await asyncio.gather(*calls[1:]) == [2, 4, 6]
        assert recorder.batches == [[1, 2, 3]]
        assert calls[0].cancelled()

    async def test_a_batch_that_all_have_left_never_starts(self) -> None:
        @batch(max_batch_size=3, batch_wait_timeout_s=0.001)
        async def record(items: list[int]) -> list[int]:
            raise AssertionError(items)

        call = asyncio.create_task(record(1))
        await settled()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(0.005)

    async def test_those_behind_a_batch_that_all_have_left_are_next(self) -> None:
        recorder = Recorder()
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(9)]
        await settled()
        for call in calls[3:6]:
            call.cancel()
        await settled()
        recorder.gate.set()
        assert await asyncio.gather(*calls[:3], *calls[6:]) == [0, 2, 4, 12, 14, 16]
        assert recorder.batches == [[0, 1, 2], [6, 7, 8]]

    async def test_the_others_of_a_running_batch_get_their_results(self) -> None:
        recorder = Recorder()
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(3)]
        await settled()
        calls[1].cancel()
        await settled()
        recorder.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert (results[0], results[2]) == (0, 4)
        assert isinstance(results[1], asyncio.CancelledError)
        assert recorder.cancelled == 0

    async def test_a_running_batch_that_all_have_left_is_cancelled_and_frees_its_place(self) -> None:
        recorder = Recorder()
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(3)]
        await settled()
        for call in calls:
            call.cancel()
        await settled()
        assert recorder.cancelled == 1
        recorder.gate.set()
        assert await asyncio.gather(*(recorder.double(i) for i in range(3))) == [0, 2, 4]

    async def test_a_batch_that_is_left_before_its_task_began_frees_its_place(self) -> None:
        recorder = Recorder()
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(6)]
        await settled()
        recorder.gate.set()  # the first batch ends, the second starts, and its callers wake up cancelled, in this order
        for call in calls[3:]:
            call.cancel()
        assert await asyncio.gather(*calls[:3]) == [0, 2, 4]
        await settled()
        assert recorder.batches == [[0, 1, 2]]
        assert await asyncio.gather(*(recorder.double(i) for i in range(3))) == [0, 2, 4]

    async def test_an_error_that_nobody_waits_for_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        @batch(max_batch_size=1)
        async def stubborn(items: list[int]) -> list[int]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("while cleaning up") from None
            return items

        call = asyncio.create_task(stubborn(1))
        await settled()
        call.cancel()
        with caplog.at_level(logging.WARNING, logger="skate.serve"):
            await settled()
        assert "while cleaning up" in caplog.text
