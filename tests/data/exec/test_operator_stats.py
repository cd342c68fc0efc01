"""How long each operator waits, and for what, with a clock that the test advances."""

from __future__ import annotations

from skate.data._exec.limits import Limits
from skate.data._exec.operator_stats import IdleTimes, OperatorStats
from skate.data._exec.operators import Map, Operator, Read
from skate.data._exec.scheduler import Scheduler, Start
from tests.data.exec.test_scheduler import MIB, WORK, item


class Watched:
    """A plan of a reading and a mapping step, and the clock that its waiting is measured with."""

    def __init__(self, *, cpus: float = 2, budget: int = 8 * MIB, parts: int = 1) -> None:
        self.read = Read("read", WORK, range(parts))
        self.map = Map("map", WORK, self.read)
        self.scheduler = Scheduler(self.map, Limits(cpus, budget), MIB)
        self.now = 0.0
        self.stats: dict[Operator, OperatorStats] = {
            each: OperatorStats(each.name) for each in (self.read, self.map)
        }
        self.idle_times = IdleTimes(self.scheduler, self.stats, lambda: self.now)
        self.tasks = [each.task for each in self.scheduler.begin() if isinstance(each, Start)]

    def stood(self, operator: Operator) -> tuple[float, float, float]:
        self.idle_times.record()
        stats = self.stats[operator]
        return stats.input_seconds, stats.output_seconds, stats.processor_seconds


def test_a_step_waits_for_input_until_there_are_rows() -> None:
    plan = Watched()
    plan.now = 3
    made = plan.scheduler.made(plan.tasks[0], item())
    plan.now = 5
    assert [each.task.operator for each in made if isinstance(each, Start)] == [plan.map]
    assert plan.stood(plan.map) == (3, 0, 0)
    assert plan.stood(plan.read) == (0, 0, 0)


def test_a_step_waits_for_output_when_nobody_takes_what_it_has_made() -> None:
    plan = Watched(budget=MIB)
    reading = plan.tasks[0]
    mapping = next(each.task for each in plan.scheduler.made(reading, item()) if isinstance(each, Start))
    plan.scheduler.made(reading, item())
    plan.scheduler.made(mapping, item())
    plan.scheduler.ended(mapping)
    plan.now = 4  # the consumer is busy with something else
    assert plan.stood(plan.map)[1] + plan.stood(plan.read)[1] >= 4


def test_a_step_waits_for_a_processor_that_another_has() -> None:
    plan = Watched(cpus=1, parts=2)
    mapping = [each for each in plan.scheduler.made(plan.tasks[0], item()) if isinstance(each, Start)]
    assert not mapping
    plan.now = 2
    assert plan.stood(plan.map) == (0, 0, 2)


def test_a_step_that_has_finished_waits_for_nothing() -> None:
    plan = Watched()
    plan.scheduler.made(plan.tasks[0], item())
    plan.scheduler.ended(plan.tasks[0])
    plan.now = 7
    assert plan.stood(plan.read) == (0, 0, 0)
