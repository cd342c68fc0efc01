"""Short tasks: sent to workers ahead of time, with results that travel together."""

from __future__ import annotations

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
