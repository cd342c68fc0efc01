"""Short tasks: sent to workers ahead of time, with results that travel together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skate
from skate.util.state import list_objects
from tests.contract.support import Signal, eventually

MB = 1024 * 1024


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    with skate.init(engine="local", num_cpus=2, object_store_memory=80 * MB):
        yield


def test_refs_that_a_task_keeps_outlive_the_result_that_it_sends_later() -> None:
    @skate.remote(num_cpus=2)
    def keep(refs: list[Any]) -> None:
        vars(skate).setdefault("kept", []).extend(refs)

    @skate.remote(num_cpus=2)
    def read() -> Any:
        return skate.get(vars(skate)["kept"])

    skate.get([keep.remote([]) for _ in range(50)])  # now they are known to be short
    for i in range(200):
        keep.remote([skate.put(i)])
    assert skate.get(read.remote()) == list(range(200))


def test_arguments_of_tasks_that_were_moved_to_another_worker_are_freed() -> None:
    signal = Signal.remote()

    @skate.remote
    def first(array: Any, *, waits: bool = False) -> float:
        if waits:
            skate.get(signal.wait.remote())
        return float(array[0])

    skate.get([first.remote([0.0]) for _ in range(200)])  # now they are known to be short
    waiting = first.remote([1.0], waits=True)
    refs = [first.remote(skate.put(np.full(MB // 8, i))) for i in range(40)]
    assert skate.get(refs) == list(range(40))
    skate.get(signal.send.remote())
    assert skate.get(waiting) == 1.0
    eventually(lambda: not any(row.object_size > MB // 2 for row in list_objects()))


def test_a_result_whose_reference_a_worker_returns_just_before_it_ends_is_not_lost() -> None:
    @skate.remote
    def inner(number: int) -> int:
        return number

    @skate.remote(max_calls=1)
    def outer(number: int, microseconds: int) -> list[Any]:
        ref = inner.remote(number)
        end = time.perf_counter() + microseconds / 1e6
        while (
            time.perf_counter() < end
        ):  # at some point, the result has been sent to this process but not received
            pass
        return [ref]

    skate.get([inner.remote(0) for _ in range(50)])  # now it is known to be short
    results = [skate.get(outer.remote(number, 50 * number))[0] for number in range(30)]
    assert skate.get(results) == list(range(30))
