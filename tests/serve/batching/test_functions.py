"""What can be batched: functions, methods, and their wrappers."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import cloudpickle
import pytest

from skate.serve.batching import batch
from tests.serve.batching.recorder import LONG, Recorder, settled


class TestKindsOfFunctions:
    async def test_a_static_method_has_no_self(self) -> None:
        class Holder:
            @staticmethod
            @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
            async def double(items: list[int]) -> list[int]:
                return [2 * item for item in items]

        assert await asyncio.gather(Holder.double(1), Holder().double(2)) == [2, 4]

    async def test_a_method_below_another_decorator_is_still_a_method(self) -> None:
        def traced(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            @functools.wraps(function)
            async def outer(*args: Any) -> Any:
                return await function(*args)

            return outer

        class Holder:
            factor = 2

            @traced
            @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
            async def scaled(self, items: list[int]) -> list[int]:
                return [self.factor * item for item in items]

        holder = Holder()
        assert await asyncio.gather(holder.scaled(1), holder.scaled(2)) == [2, 4]

    async def test_an_overridden_method_and_the_one_it_calls_batch_separately(self) -> None:
        class Loud(Recorder):
            @batch(max_batch_size=3, batch_wait_timeout_s=LONG)
            async def double(self, items: list[int]) -> list[int]:
                return await asyncio.gather(*(super(Loud, self).double(item + 1) for item in items))

        loud = Loud()
        assert await asyncio.gather(*(loud.double(i) for i in range(3))) == [2, 4, 6]
        assert loud.batches == [[1, 2, 3]]

    async def test_a_function_that_becomes_a_method_later_is_one(self) -> None:
        async def scaled(self: Any, items: list[int]) -> list[int]:
            return [self.factor * item for item in items]

        class Holder:
            factor = 5

        Holder.scaled = batch(max_batch_size=2, batch_wait_timeout_s=LONG)(scaled)
        holder: Any = Holder()
        assert await asyncio.gather(holder.scaled(1), holder.scaled(2)) == [5, 10]

    async def test_an_object_can_be_called_in_batches(self) -> None:
        class Model:
            @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
            async def __call__(self, items: list[int]) -> list[int]:
                return [-item for item in items]

        model = Model()
        assert await asyncio.gather(model(1), model(2)) == [-1, -2]

    def test_the_decorated_function_looks_like_the_original(self) -> None:
        assert inspect.iscoroutinefunction(Recorder.double)
        assert Recorder.double.__name__ == "double"
        assert list(inspect.signature(Recorder.double).parameters) == ["self", "items"]

    async def test_an_object_without_room_for_batches_is_refused(self) -> None:
        class Slotted:
            __slots__ = ()

            @batch
            async def double(self, items: list[int]) -> list[int]:
                return items

        with pytest.raises(
            TypeError, match=r"@serve\.batch stores its state in the __dict__ of a Slotted, which has none"
        ):
            await Slotted().double(1)

    async def test_a_copied_object_does_not_share_the_batches_of_the_original(self) -> None:
        original = Recorder()
        waiting = asyncio.create_task(original.double(1))
        await settled()
        twin = copy.copy(original)
        twin.batches = []
        assert await asyncio.gather(*(twin.double(i) for i in range(3))) == [0, 2, 4]
        assert (original.batches, twin.batches) == ([], [[0, 1, 2]])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async def test_functions_travel_with_their_settings_and_without_what_waits(self) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def double(items: list[int]) -> list[int]:
            return [2 * item for item in items]

        double.set_max_batch_size(1)
        assert await double(1) == 2
        there = pickle.loads(cloudpickle.dumps(double))
        assert there._get_max_batch_size() == 1
        assert await there(4) == 8

    async def test_an_object_with_batches_can_be_pickled(self) -> None:
        class Model:
            @batch(max_batch_size=1)
            async def double(self, items: list[int]) -> list[int]:
                return [2 * item for item in items]

        model = Model()
        assert await model.double(1) == 2
        assert await pickle.loads(cloudpickle.dumps(model)).double(2) == 4

    @pytest.mark.parametrize("bad", [lambda items: items, int])
    def test_only_async_functions_are_taken(self, bad: Any) -> None:
        with pytest.raises(TypeError, match="is not async: write 'async def'"):
            batch(bad)

    def test_what_is_no_function_is_refused(self) -> None:
        with pytest.raises(TypeError, match="decorates an async function or method, not 3"):
            batch(3)
