"""Calling deployments from Python."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import skate
from skate import serve
from skate.serve.exceptions import (
    BackPressureError,
    RayServeException,
    ReplicaUnavailableError,
    RequestCancelledError,
)
from skate.serve.handle import DeploymentHandle
from tests.serve.conftest import light

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("engine")]


@light(max_ongoing_requests=20)
class Worker:
    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.gate = asyncio.Event()
        self.cancelled = 0

    def __call__(self, number: int = 1) -> int:
        return self.base + number

    async def double(self, number: int) -> int:
        return 2 * number

    def fail(self) -> None:
        raise ValueError("no good")

    async def wait(self) -> str:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "through"

    async def open(self) -> None:
        self.gate.set()

    async def count_cancelled(self) -> int:
        return self.cancelled

    def size(self, array: np.ndarray) -> int:
        return int(array.sum())

    def make(self, count: int) -> np.ndarray:
        return np.ones(count)

    def numbers(self, count: int) -> Iterator[int]:
        yield from range(count)

    async def numbers_later(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    def fail_after(self, count: int) -> Iterator[int]:
        yield from range(count)
        raise KeyError("over")

    def request_id(self) -> str:
        context = serve.context._get_request()
        assert context is not None
        return context.request_id


def test_a_handle_calls_methods_of_either_kind(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind(10))
    assert handle.remote(5).result() == 15
    assert handle.remote(number=6).result() == 16
    assert handle.double.remote(4).result() == 8
    assert handle.options(method_name="double").remote(3).result() == 6


def test_many_calls_at_once_are_all_answered(run: Callable[..., Any]) -> None:
    handle = run(Worker.options(num_replicas=2).bind())
    responses = [handle.remote(number) for number in range(500)]
    assert [response.result() for response in responses] == list(range(500))


def test_an_error_keeps_its_type_and_shows_where_it_happened(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    with pytest.raises(ValueError, match="no good") as caught:
        handle.fail.remote().result()
    assert "def fail" in str(caught.value) or "in fail" in str(caught.value)


def test_a_method_that_does_not_exist_is_named_with_those_that_do(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    with pytest.raises(RayServeException, match=r"no method 'treble'.*double"):
        handle.treble.remote().result()


def test_arguments_and_results_may_be_large(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    assert handle.size.remote(np.ones(1_000_000)).result() == 1_000_000
    assert handle.make.remote(1_000_000).result().sum() == 1_000_000


def test_references_are_resolved_as_for_any_actor(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    assert handle.size.remote(skate.put(np.ones(7))).result() == 7
    assert handle.size.remote(array=skate.put(np.ones(8))).result() == 8


def test_a_response_is_passed_on_as_it_is(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind(1))
    assert handle.remote(handle.remote(handle.remote(0))).result() == 3
    assert handle.size.remote(handle.make.remote(500_000)).result() == 500_000


def test_an_error_of_what_is_passed_on_is_the_error_of_the_call(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    with pytest.raises(ValueError, match="no good"):
        handle.remote(handle.fail.remote()).result()


def test_a_response_within_another_object_is_refused(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    response = handle.remote(1)
    with pytest.raises(RayServeException, match="pass it as an argument"):
        handle.remote([response])
    response.result()


def test_waiting_ends_after_the_time_given_and_the_request_goes_on(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    response = handle.wait.remote()
    with pytest.raises(TimeoutError, match="continues"):
        response.result(timeout_s=0.05)
    handle.open.remote().result()
    assert response.result() == "through"


def test_a_cancelled_request_stops_its_method(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    response = handle.wait.remote()
    with pytest.raises(TimeoutError):
        response.result(timeout_s=0.1)  # it has reached the replica
    response.cancel()
    with pytest.raises(RequestCancelledError):
        response.result()
    assert response.cancelled()
    assert handle.count_cancelled.remote().result() == 1


def test_awaiting_a_cancelled_request_says_that_it_was(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())

    async def go() -> None:
        response = handle.wait.remote()
        response.cancel()
        with pytest.raises(RequestCancelledError):
            await response

    asyncio.run(go())


def test_handles_work_in_an_event_loop_of_the_program(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind(5))

    async def go() -> list[int]:
        return list(await asyncio.gather(*(handle.remote(number) for number in range(20))))

    assert asyncio.run(go()) == list(range(5, 25))


def test_blocking_in_an_event_loop_is_refused(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())

    async def go() -> None:
        response = handle.remote(1)
        with pytest.raises(RuntimeError, match="await response"):
            response.result()
        assert await response == 1

    asyncio.run(go())


def test_handles_work_from_several_threads(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    found: list[list[int]] = []

    def go() -> None:
        found.append([handle.remote(number).result() for number in range(50)])

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(50))] * 4


@pytest.mark.parametrize("method", ["numbers", "numbers_later"])
def test_a_generator_is_read_as_a_stream(run: Callable[..., Any], method: str) -> None:
    handle = run(Worker.bind()).options(stream=True, method_name=method)
    assert list(handle.remote(200)) == list(range(200))

    async def go() -> list[int]:
        return [number async for number in handle.remote(200)]

    assert asyncio.run(go()) == list(range(200))


def test_an_error_in_a_stream_comes_after_what_was_yielded(run: Callable[..., Any]) -> None:
    stream = run(Worker.bind()).options(stream=True).fail_after.remote(3)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_a_generator_without_stream_says_what_to_do(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind())
    with pytest.raises(TypeError, match="stream=True"):
        handle.numbers.remote(3).result()
    with pytest.raises(TypeError, match="did not return a generator"):
        next(handle.options(stream=True).double.remote(3))


def test_a_handle_can_be_pickled(run: Callable[..., Any]) -> None:
    handle = run(Worker.bind(2))
    again = pickle.loads(pickle.dumps(handle.options(method_name="double")))
    assert again.remote(4).result() == 8

    @skate.remote
    def elsewhere(handle: DeploymentHandle[Any]) -> int:
        return handle.remote(1).result()

    assert skate.get(elsewhere.remote(handle)) == 3


def test_requests_over_the_limit_of_the_queue_are_turned_away(run: Callable[..., Any]) -> None:
    handle = run(Worker.options(max_ongoing_requests=1, max_queued_requests=1).bind())
    first = handle.wait.remote()
    with pytest.raises(TimeoutError):
        first.result(timeout_s=0.1)
    second = handle.remote(1)
    with pytest.raises(BackPressureError, match="max_queued_requests is 1"):
        handle.remote(2).result()
    first.cancel()
    assert second.result() == 1


def test_handles_by_name(run: Callable[..., Any]) -> None:
    run(Worker.bind(7), name="seven", route_prefix=None)
    assert serve.get_app_handle("seven").remote(0).result() == 7
    assert serve.get_deployment_handle("Worker", "seven").remote(1).result() == 8
    with pytest.raises(RayServeException, match="'eight' does not exist"):
        serve.get_app_handle("eight")
    with pytest.raises(RayServeException, match="does not exist"):
        serve.get_deployment_handle("Nobody", "seven")


@light
class Front:
    def __init__(self, one: DeploymentHandle[Any], others: dict[str, DeploymentHandle[Any]]) -> None:
        self.one = one
        self.others = others

    async def __call__(self, number: int) -> int:
        return await self.others["two"].remote(self.one.remote(number))

    async def ids(self) -> list[str]:
        context = serve.context._get_request()
        assert context is not None
        return [context.request_id, await self.one.request_id.remote()]

    async def wait(self) -> str:
        return await self.one.wait.remote()


def test_deployments_are_composed(run: Callable[..., Any]) -> None:
    handle = run(Front.bind(Worker.bind(1), {"two": Worker.bind(10)}))
    assert handle.remote(0).result() == 11
    assert set(serve.status().applications["default"].deployments) == {"Front", "Worker", "Worker_1"}


def test_a_request_keeps_its_id_through_all_deployments(run: Callable[..., Any]) -> None:
    handle = run(Front.bind(Worker.bind(), {}))
    response = handle.ids.remote()
    assert response.result() == [response.request_id, response.request_id]


def test_cancelling_a_request_cancels_what_it_called(run: Callable[..., Any]) -> None:
    handle = run(Front.bind(Worker.bind(), {}))
    inner = serve.get_deployment_handle("Worker", "default")
    response = handle.wait.remote()
    with pytest.raises(TimeoutError):
        response.result(timeout_s=0.2)
    response.cancel()
    with pytest.raises(RequestCancelledError):
        response.result()
    while inner.count_cancelled.remote().result() != 1:
        pass


def test_one_application_used_twice_is_one_deployment(run: Callable[..., Any]) -> None:
    shared = Worker.bind(3)
    run(Front.bind(shared, {"two": shared}))
    assert set(serve.status().applications["default"].deployments) == {"Front", "Worker"}


def test_a_broadcast_reaches_every_replica_however_busy(run: Callable[..., Any]) -> None:
    @light(num_replicas=3, max_ongoing_requests=1)
    class Each:
        def __init__(self) -> None:
            self.values: list[int] = []

        async def add(self, value: int) -> int:
            self.values.append(value)
            return len(self.values)

        async def fail(self) -> None:
            raise ValueError("each fails")

    handle = run(Each.bind())
    assert handle.broadcast("add", 5).results(timeout_s=30) == [1, 1, 1]
    assert handle.broadcast("add", value=6).results() == [2, 2, 2]
    assert asyncio.run(handle.broadcast("add", 7).results_async()) == [3, 3, 3]
    with pytest.raises(ValueError, match="each fails"):
        handle.broadcast("fail").results()
    errors = handle.broadcast("fail").results(return_exceptions=True)
    assert [isinstance(error, ValueError) for error in errors] == [True] * 3


def test_a_request_that_is_cancelled_at_once_leaves_its_place(run: Callable[..., Any]) -> None:
    handle = run(Worker.options(max_ongoing_requests=1).bind())

    async def go() -> int:
        handle.remote(0)
        for _ in range(50):
            handle.wait.remote().cancel()  # the call and its end may arrive together
        return int(await handle.remote(7))

    assert asyncio.run(go()) == 7


def test_a_replica_is_chosen_first_and_called_afterwards(run: Callable[..., Any]) -> None:
    @light(num_replicas=2, max_ongoing_requests=1)
    class Who:
        async def __call__(self, word: str) -> tuple[str, str]:
            return serve.get_replica_context().replica_tag, word

        async def letters(self, word: str) -> AsyncIterator[str]:
            for letter in word:
                yield letter

        async def leave(self) -> None:
            import os

            os._exit(1)

    handle = run(Who.bind())

    async def choose() -> None:
        async with handle.choose_replica("a") as first, handle.choose_replica("b") as second:
            assert first.replica_id != second.replica_id  # each has room for one
            assert first.to_dict()["node_id"] == first.node_id
            assert await handle.dispatch(first, "a") == (first.replica_id, "a")
            assert await handle.dispatch(second, "b") == (second.replica_id, "b")
            with pytest.raises(RuntimeError, match="already"):
                handle.dispatch(first, "a")
            with pytest.raises(ValueError, match="another"):
                DeploymentHandle("another").dispatch(first)
        stream = handle.options(stream=True, method_name="letters")
        async with stream.choose_replica() as chosen:
            assert [letter async for letter in stream.dispatch(chosen, "xyz")] == ["x", "y", "z"]
        async with handle.choose_replica():
            pass  # nothing is sent, and the room is free again
        async with handle.choose_replica() as one, handle.leave.choose_replica() as other:
            assert {one.replica_id, other.replica_id} == {first.replica_id, second.replica_id}
            with pytest.raises(ReplicaUnavailableError):
                await handle.leave.dispatch(other)

    asyncio.run(choose())
