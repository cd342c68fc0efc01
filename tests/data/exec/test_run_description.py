"""What the run record of a plan says, decided without processes and with a clock that the test advances."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skate.data._exec.items import Item, Report
from skate.data._exec.limits import Limits
from skate.data._exec.operator_stats import IdleTimes, OperatorStats
from skate.data._exec.operators import Map, Operator, Read
from skate.data._exec.run_description import RunDescription, operator_names
from skate.data._exec.scheduler import Instruction, Resume, Scheduler, Start
from skate.data._exec.tasks import Task
from tests.data.exec.test_scheduler import MIB, WORK, item


class Plan:
    """A plan of a reading and a mapping step, and its description."""

    def __init__(
        self, *, cpus: float = 2, budget: int = 8 * MIB, parts: int = 1, memory: int | None = None
    ) -> None:
        self.read = Read("read", WORK, range(parts))
        self.map = Map("map", WORK, self.read)
        self.scheduler = Scheduler(self.map, Limits(cpus, budget, memory), MIB)
        self.stats: dict[Operator, OperatorStats] = {
            each: OperatorStats(each.name) for each in (self.read, self.map)
        }
        self.now = 0.0
        idle_times = IdleTimes(self.scheduler, self.stats, lambda: self.now)
        self.description = RunDescription(
            self.scheduler, self.stats, idle_times, lambda: 40, lambda: self.now
        )
        self.tasks: list[Task] = []
        self.do(self.scheduler.begin())

    def do(self, instructions: list[Instruction]) -> None:
        self.tasks += [each.task for each in instructions if isinstance(each, Start | Resume)]

    def made(self, task: Task, made: Item) -> None:
        self.do(self.scheduler.made(task, made))

    def ended(self, task: Task) -> None:
        self.do(self.scheduler.ended(task))

    def described(self, operator: Operator) -> dict[str, Any]:
        found = self.description()
        json.dumps(found, allow_nan=False)
        row: dict[str, Any] = next(each for each in found["operators"] if each["name"] == operator.name)
        return row


def test_a_plan_is_a_graph_of_operators() -> None:
    plan = Plan()
    assert operator_names(plan.description._operators) == "read → map"
    assert [(each["id"], each["inputs"]) for each in plan.description()["operators"]] == [
        ("0", []),
        ("1", ["0"]),
    ]


def test_rows_and_bytes_are_counted_as_they_move_on() -> None:
    plan = Plan(parts=2, cpus=1)
    plan.made(plan.tasks[0], item(10))
    plan.ended(plan.tasks[0])
    assert plan.described(plan.read) | {"rate": 0} == {
        "id": "0",
        "name": "read",
        "inputs": [],
        "rows_in": 0,
        "rows_out": 10,
        "bytes_out": MIB,
        "blocks_queued": 1,
        "output_backpressure_s": 0.0,
        "submission_backpressure_s": 0.0,
        "tasks_active": 0,
        "rate": 0,
        "state": "waiting",
        "backpressure": "all 1 processors of the plan are in use",
    }
    mapping = plan.described(plan.map)
    assert (mapping["rows_in"], mapping["rows_out"], mapping["tasks_active"]) == (10, 0, 1)
    assert (mapping["state"], mapping["backpressure"]) == ("running", None)


def test_a_plan_knows_how_many_rows_it_has_done() -> None:
    plan = Plan()
    plan.made(plan.tasks[0], item(10))
    plan.ended(plan.tasks[0])
    plan.made(plan.tasks[1], item(8))
    found = plan.description()
    assert (found["rows"], found["total_rows"], found["summary"]) == (8, 40, "8 of 40 rows")


def test_rates_are_those_of_the_last_seconds_and_at_the_end_those_of_the_run() -> None:
    plan = Plan(parts=3, cpus=8, budget=1000 * MIB)
    reading = plan.tasks[:3]
    plan.now = 2
    plan.made(reading[0], item(10))
    assert plan.described(plan.read)["rate"] == 5
    plan.now = 12
    assert plan.described(plan.read)["rate"] == 0
    for task in reading:
        plan.ended(task)
    plan.scheduler.stop()
    plan.now = 20
    assert plan.described(plan.read)["rate"] == 0.5


def test_an_operator_whose_blocks_are_not_consumed_says_so() -> None:
    plan = Plan(budget=MIB)
    reading = plan.tasks[0]
    plan.made(reading, item())
    plan.made(plan.tasks[1], item(size=4 * MIB))
    waiting = plan.described(plan.map)
    assert waiting["state"] == "waiting"
    assert waiting["backpressure"] == (
        "blocks are not consumed as fast as they are created: 5.2 MB wait, the limit of the plan is 1.0 MB"
    )


def test_a_plan_that_is_short_of_memory_says_so() -> None:
    plan = Plan(memory=2 * MIB)
    plan.scheduler.update_memory(("host", 1), 3 * MIB)
    plan.made(plan.tasks[0], item())
    assert "the memory limit is 2.1 MB" in str(plan.described(plan.read)["backpressure"])


def test_a_plan_that_was_stopped_has_finished() -> None:
    plan = Plan()
    plan.scheduler.stop()
    assert [each["state"] for each in plan.description()["operators"]] == ["finished", "finished"]


@pytest.mark.parametrize("rows", [0, 70])
def test_an_operator_with_a_sink_counts_the_rows_that_it_has_written(rows: int) -> None:
    plan = Plan()
    plan.made(plan.tasks[0], item(100))
    task, result = plan.tasks[1], item(1)
    report = Report(1, result.bytes, result.schema, notes={"written": (rows, 500)})
    plan.stats[plan.map].add(task, report)
    plan.made(task, result)
    assert (plan.described(plan.map)["rows_out"], plan.described(plan.map)["bytes_out"]) == (rows, 500)
