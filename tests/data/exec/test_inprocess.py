"""Plans that begin in this process."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import skate
from skate.data import DataContext
from skate.data._exec.drivers.inprocess import InProcessDriver
from skate.data._exec.limits import Limits
from skate.data._exec.operators import Values
from skate.data._exec.scheduler import Scheduler


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def processes(dataset: Any) -> set[int]:
    return {row["pid"] for row in dataset.take_all()}


def test_a_small_plan_needs_no_session() -> None:
    assert processes(skate.data.range(5).map(lambda row: {"pid": os.getpid()})) == {os.getpid()}
    assert not skate.is_initialized()


def test_a_plan_whose_functions_take_long_goes_on_in_workers() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        busy(0.15)
        return {"id": row["id"], "pid": os.getpid()}

    found = skate.data.range(12, override_num_blocks=12).map(slow).take_all()
    assert [row["id"] for row in found] == list(range(12))
    assert len({row["pid"] for row in found}) > 1
    assert found[0]["pid"] == os.getpid()
    skate.shutdown()


def test_a_plan_that_is_nearly_done_is_finished_here() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        busy(0.3)
        return {"pid": os.getpid()}

    assert processes(skate.data.range(2, override_num_blocks=2).map(slow)) == {os.getpid()}
    assert not skate.is_initialized()


def test_what_asks_for_resources_runs_in_workers() -> None:
    ds = skate.data.range(2).map(lambda row: {"pid": os.getpid()}, num_cpus=1)
    assert os.getpid() not in processes(ds)
    skate.shutdown()


@pytest.mark.usefixtures("settings")
def test_a_plan_over_the_limit_runs_in_workers() -> None:
    DataContext.get_current().small_plan_bytes = 100
    assert os.getpid() not in processes(skate.data.range(50).map(lambda row: {"pid": os.getpid()}))
    skate.shutdown()


@pytest.mark.parametrize(
    ("seconds", "tasks", "left", "leaves"), [(1, 2000, 9000, False), (1, 100, 200, True)]
)
def test_many_tiny_tasks_are_not_worth_sending(seconds: float, tasks: int, left: int, leaves: bool) -> None:
    driver = InProcessDriver(Scheduler(Values("Input", []), Limits(cpus=1, bytes=1), 1), lambda *_: True)
    driver._worked, driver._ended = seconds, tasks
    driver._to_start = [object()] * left  # type: ignore[list-item]  # only how many there are matters
    assert driver._takes_long() is leaves
