"""The maximum size and the timeout of a batch, and where they are set."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skate.serve.batching import batch
from tests.serve.batching.recorder import LONG, Recorder, settled


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value", "error"),
        [
            ("max_batch_size", 0, ValueError),
            ("max_batch_size", 1.5, TypeError),
            ("max_batch_size", "3", TypeError),
            ("batch_wait_timeout_s", -0.1, ValueError),
            ("batch_wait_timeout_s", float("nan"), ValueError),
            ("batch_wait_timeout_s", "1", TypeError),
            ("max_concurrent_batches", 0, ValueError),
            ("max_concurrent_batches", 1.5, TypeError),
            ("batch_size_fn", 3, TypeError),
        ],
    )
    def test_a_bad_value_is_refused_and_named(self, name: str, value: Any, error: type[Exception]) -> None:
        with pytest.raises(error, match=name):
            batch(**{name: value})

    def test_a_whole_number_may_be_written_as_a_float(self) -> None:
        @batch(max_batch_size=4.0)
        async def double(items: list[int]) -> list[int]:
            return items

        assert double._get_max_batch_size() == 4

    @pytest.mark.usefixtures("settings")
    async def test_new_settings_hold_from_the_next_batch_on(self) -> None:
        recorder = Recorder()
        started = [asyncio.create_task(recorder.double(i)) for i in range(2)]
        await settled()
        recorder.double.set_max_batch_size(1)
        await settled()
        assert recorder.batches == []  # it goes on by what it began with
        assert await recorder.double(2) == 4
        assert await asyncio.gather(*started) == [0, 2]
        assert await recorder.double(3) == 6
        assert recorder.batches == [[0, 1, 2], [3]]
        assert recorder.double._get_max_batch_size() == 1

    @pytest.mark.usefixtures("settings")
    async def test_what_waits_behind_a_batch_goes_by_new_settings(self) -> None:
        recorder = Recorder()
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(9)]
        await settled()
        recorder.double.set_max_batch_size(4)
        recorder.double.set_batch_wait_timeout_s(0)
        recorder.gate.set()
        assert await asyncio.gather(*calls) == [2 * i for i in range(9)]
        # The second had been the next in line when the settings changed.
        assert recorder.batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]

        recorder.gate.clear()
        recorder.batches.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(12)]
        await settled()
        recorder.double.set_max_batch_size(2)
        recorder.gate.set()
        await asyncio.gather(*calls)
        assert recorder.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11]]

    @pytest.mark.usefixtures("settings")
    def test_a_setter_checks_its_value_and_keeps_the_old_one(self) -> None:
        with pytest.raises(ValueError, match="max_batch_size"):
            Recorder.double.set_max_batch_size(0)
        with pytest.raises(TypeError, match="batch_wait_timeout_s"):
            Recorder.double.set_batch_wait_timeout_s("soon")
        assert Recorder.double._get_max_batch_size() == 3
        assert Recorder.double._get_batch_wait_timeout_s() == LONG


class TestSizes:
    async def test_a_batch_holds_what_fits_by_size_in_order(self) -> None:
        batches = []

        @batch(max_batch_size=10, batch_wait_timeout_s=0.001, batch_size_fn=sum)
        async def record(items: list[int]) -> list[int]:
            batches.append(items)
            return items

        sizes = [6, 6, 3, 1, 4, 10, 2]
        assert await asyncio.gather(*(record(size) for size in sizes)) == sizes
        assert batches == [[6], [6, 3, 1], [4], [10], [2]]

    async def test_the_size_of_a_batch_need_not_be_a_sum(self) -> None:
        batches = []

        def padded(items: list[str]) -> int:
            return len(items) * max(map(len, items))

        @batch(max_batch_size=8, batch_wait_timeout_s=0.001, batch_size_fn=padded)
        async def record(items: list[str]) -> list[str]:
            batches.append(items)
            return items

        await asyncio.gather(*(record(text) for text in ("a", "bb", "cc", "dddd", "e")))
        assert batches == [["a", "bb", "cc"], ["dddd", "e"]]

    async def test_an_item_that_fits_no_batch_fails_alone(self) -> None:
        @batch(max_batch_size=10, batch_wait_timeout_s=0.001, batch_size_fn=sum)
        async def same(items: list[int]) -> list[int]:
            return items

        small, large, after = await asyncio.gather(same(6), same(12), same(3), return_exceptions=True)
        assert (small, after) == (6, 3)
        assert isinstance(large, RuntimeError)
        assert "max_batch_size=10" in str(large)
        with pytest.raises(RuntimeError, match="batch_size_fn of an item exceeds the limit of a whole batch"):
            await same(11)

    async def test_an_error_while_measuring_goes_to_the_caller_of_the_item(self) -> None:
        @batch(
            max_batch_size=10, batch_wait_timeout_s=0.001, batch_size_fn=lambda items: sum(map(len, items))
        )
        async def same(items: list[Any]) -> list[Any]:
            return items

        good, bad = await asyncio.gather(same("abc"), same(3), return_exceptions=True)
        assert good == "abc"
        assert isinstance(bad, TypeError)

    async def test_a_size_that_is_no_number_is_an_error(self) -> None:
        @batch(batch_size_fn=lambda items: None)
        async def same(items: list[Any]) -> list[Any]:
            return items

        with pytest.raises(TypeError, match="batch_size_fn must return a number, got None"):
            await same(1)

    async def test_an_item_that_new_settings_make_too_large_fails(self) -> None:
        gate = asyncio.Event()

        @batch(max_batch_size=10, batch_wait_timeout_s=LONG, batch_size_fn=sum)
        async def same(items: list[int]) -> list[int]:
            await gate.wait()
            return items

        calls = [asyncio.create_task(same(size)) for size in (10, 10, 8, 2)]
        await settled()
        same.set_max_batch_size(2)
        gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [results[0], results[1], results[3]] == [10, 10, 2]
        assert "max_batch_size=2" in str(results[2])
