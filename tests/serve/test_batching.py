from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import gc
import inspect
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from skate.serve import context
from skate.serve._batching.requests import batch_requests
from skate.serve._ids import DeploymentID, ReplicaID
from skate.serve.batching import batch
from skate.serve.context import ReplicaContext, _RequestContext
from skate.serve.exceptions import RayServeException
from skate.util import metrics
from skate.util._metrics_store import Store
from skate.util.metrics import prometheus_text

LONG = 1000.0  # a batch that waits for so long starts because it is full, or never


async def settled() -> None:
    """Let everything run that is ready to run."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
async def no_tasks_are_left() -> AsyncIterator[None]:
    yield
    await settled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture(autouse=True)
def no_request_is_left() -> Iterator[None]:
    token = context._request.set(None)
    yield
    context._request.reset(token)


class Recorder:
    """Doubles what it gets, in batches that it writes down and lets wait for `gate`."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0

    @batch(max_batch_size=3, batch_wait_timeout_s=LONG)
    async def double(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [2 * item for item in items]


@pytest.fixture
def settings() -> Iterator[None]:
    """Undo what a test sets on the class that tests share."""
    yield
    Recorder.double.set_max_batch_size(3)
    Recorder.double.set_batch_wait_timeout_s(LONG)


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
            TypeError, match=r"@serve\.batch keeps what belongs to a Slotted in its __dict__, and it has none"
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
        with pytest.raises(TypeError, match="must be 'async def'"):
            batch(bad)

    def test_what_is_no_function_is_refused(self) -> None:
        with pytest.raises(TypeError, match="can only be used to decorate functions or methods, got 3"):
            batch(3)


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
        with pytest.raises(RuntimeError, match="larger by batch_size_fn than a whole batch may be"):
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

        with pytest.raises(RuntimeError, match=r"gave StopIteration\(3\)"):
            await stop(1)

    @pytest.mark.parametrize("count", [1, 3])
    async def test_a_wrong_number_of_results_is_an_error_with_both_numbers(self, count: int) -> None:
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def wrong(items: list[int]) -> list[int]:
            return [0] * count

        for result in await asyncio.gather(wrong(1), wrong(2), return_exceptions=True):
            assert isinstance(result, RayServeException)
            assert f"with 2 items and gave {count} results" in str(result)

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
            with pytest.raises(RayServeException, match="with 2 items and gave 3 results"):
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


class TestRequests:
    @staticmethod
    async def within(request: _RequestContext, call: Callable[[], Awaitable[Any]]) -> Any:
        context._request.set(request)
        return await call()

    async def test_a_batch_knows_its_requests_and_is_of_none_of_them(self) -> None:
        seen = []

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def look(items: list[int]) -> list[int]:
            seen.append(([request.request_id for request in batch_requests()], context._get_request()))
            return items

        requests = [_RequestContext(request_id=name) for name in "ab"]
        calls = [asyncio.create_task(self.within(request, lambda: look(1))) for request in requests]
        await asyncio.gather(*calls)
        assert seen == [(["a", "b"], None)]
        assert batch_requests() == ()

    async def test_requests_for_different_models_run_side_by_side(self) -> None:
        gate = asyncio.Event()
        seen = []

        @batch(max_batch_size=4, batch_wait_timeout_s=LONG)
        async def look(items: list[int]) -> list[str]:
            seen.append(items)
            await gate.wait()
            model = batch_requests()[0].multiplexed_model_id
            return [f"{model}{item}" for item in items]

        models = ["x", "y", "x", "x"]
        calls = [
            asyncio.create_task(
                self.within(_RequestContext(multiplexed_model_id=model), functools.partial(look, i))
            )
            for i, model in enumerate(models)
        ]
        await settled()
        assert seen == [[0, 2, 3], [1]]
        gate.set()
        assert await asyncio.gather(*calls) == ["x0", "y1", "x2", "x3"]

    async def test_the_parts_of_a_split_batch_take_one_place_together(self) -> None:
        running, most = 0, 0

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def look(items: list[int]) -> list[int]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await settled()
            running -= 1
            return items

        calls = [
            asyncio.create_task(
                self.within(_RequestContext(multiplexed_model_id=model), functools.partial(look, i))
            )
            for i, model in enumerate("abab")
        ]
        assert await asyncio.gather(*calls) == [0, 1, 2, 3]
        assert most == 2

    async def test_a_batch_runs_in_the_context_of_its_first_caller(self) -> None:
        user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def whoami(items: list[int]) -> list[str]:
            name = user.get()
            user.set("changed")
            return [name] * len(items)

        async def call(name: str) -> tuple[str, str]:
            user.set(name)
            return await whoami(1), user.get()

        assert await asyncio.gather(call("ann"), call("bob")) == [("ann", "ann"), ("ann", "bob")]


class TestLookingIn:
    async def test_running_batches_can_be_seen(self) -> None:
        recorder = Recorder()
        double: Any = recorder.double
        assert await double._is_batching_task_alive()
        assert double._get_curr_iteration_start_times().start_times == []
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(3)]
        await settled()
        times = pickle.loads(pickle.dumps(double._get_curr_iteration_start_times()))
        assert times.num_requests == 1
        assert times.min_start_time == times.mean_start_time == times.max_start_time
        assert "_run" in await double._get_handling_task_stack()
        recorder.gate.set()
        await asyncio.gather(*calls)
        assert double._get_curr_iteration_start_times().max_start_time is None
        assert await double._get_handling_task_stack() == ""


class TestInAReplica:
    @pytest.fixture(autouse=True)
    def replica(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        fresh = Store(lambda: None)
        monkeypatch.setattr(metrics, "store", fresh)
        replica_id = ReplicaID("abc", DeploymentID("Model", "shop"))
        config = SimpleNamespace(max_ongoing_requests=4)
        monkeypatch.setattr(context, "_process_replica", ReplicaContext(replica_id, None, config))
        yield
        fresh.detach()

    async def test_batches_are_measured(self) -> None:
        @batch(max_batch_size=4, batch_wait_timeout_s=0.001)
        async def double(items: list[int]) -> list[int]:
            return [2 * item for item in items]

        await asyncio.gather(*(double(i) for i in range(5)))
        text = prometheus_text()
        tags = 'application="shop",deployment="Model",function_name="double"'
        assert f'skate_serve_batches_processed_total{{{tags},replica="abc"}} 2.0' in text
        assert f'skate_serve_actual_batch_size_sum{{{tags},replica="abc"}} 5.0' in text
        assert f'skate_serve_batch_utilization_percent_sum{{{tags},replica="abc"}} 125.0' in text
        for name in ("wait", "execution"):
            assert f'skate_serve_batch_{name}_time_ms_count{{{tags},replica="abc"}} 2' in text
        (queued,) = (line for line in text.splitlines() if line.startswith("skate_serve_batch_queue_length{"))
        assert queued.endswith(" 0.0")

    async def test_batches_that_the_deployment_never_fills_are_warned_of(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        @batch(max_batch_size=4, batch_wait_timeout_s=0)
        async def double(items: list[int]) -> list[int]:
            return [2 * item for item in items]

        assert await double(1) == 2
        assert caplog.text == ""
        double.set_max_batch_size(5)
        assert "max_batch_size=5 times max_concurrent_batches=1 is more" in caplog.text
        assert "Set max_ongoing_requests to at least 5" in caplog.text
