"""Which operators a running plan pauses when memory is short, and that it always makes progress; without processes."""

from __future__ import annotations

import pytest

from skate.data._exec.actor_pool import ActorPool
from skate.data._exec.limits import Limits, shares
from skate.data._exec.operators import Map, Operator, Read
from skate.data._exec.scheduler import Instruction, Resume, Scheduler, Start
from skate.data._exec.streaming_operators import Union
from skate.data._exec.tasks import Task
from tests.data.exec.test_scheduler import MIB, WORK, item, started

LAPTOP = "laptop"


class Crew:
    """Carries out what a scheduler wants, a block at a time: the task that has been at it longest goes first."""

    def __init__(self, scheduler: Scheduler, blocks_each: dict[str, int]) -> None:
        self.scheduler = scheduler
        self.most_used = 0
        self.most_going = 0.0
        self._left: dict[Task, int] = {}
        self._blocks_each = blocks_each
        self._note(scheduler.begin())

    def _note(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Start):
                self._left[each.task] = self._blocks_each[each.task.operator.name]
            assert not (isinstance(each, Resume) and each.task not in self._left)
        self.most_used = max(self.most_used, self.scheduler.used)
        self.most_going = max(self.most_going, sum(task.is_active for task in self._left))

    def run(self) -> int:
        """Work until everything has been taken; return how many items there were."""
        taken = 0
        while not self.scheduler.finished:
            going = [task for task in self._left if task.is_active]
            for task in going:
                if self._left[task] == 0:
                    del self._left[task]
                    self._note(self.scheduler.ended(task))
                else:
                    self._left[task] -= 1
                    self._note(self.scheduler.made(task, item()))
            found, instructions = self.scheduler.take()
            self._note(instructions)
            taken += found is not None
            assert going or found is not None or self.scheduler.finished, (
                "every operator waits for another one"
            )
        return taken


def scheduler(
    root: Operator, *, cpus: float = 2, budget: int = 8 * MIB, memory: int | None = None
) -> Scheduler:
    return Scheduler(root, Limits(cpus, budget, memory), MIB)


@pytest.mark.parametrize("cpus", [1, 2, 4])
@pytest.mark.parametrize("budget", [1, 2 * MIB, 8 * MIB])
def test_tasks_that_make_many_blocks_do_not_keep_those_from_running_who_take_them(
    cpus: int, budget: int
) -> None:
    read = Read("read", WORK, range(4))
    crew = Crew(scheduler(Map("map", WORK, read), cpus=cpus, budget=budget), {"read": 32, "map": 1})
    assert crew.run() == 4 * 32
    assert crew.most_used <= budget + (1 + 2 * cpus) * MIB
    assert crew.most_going <= max(cpus, 2)


@pytest.mark.parametrize("budget", [1, 2 * MIB, 8 * MIB])
def test_actors_get_their_blocks_while_the_reading_is_held_back(budget: int) -> None:
    pool = ActorPool(WORK, 1, 1, 1)
    running = scheduler(Map("map", WORK, Read("read", WORK, range(4)), pool=pool), budget=budget)
    crew = Crew(running, {"read": 32, "map": 1})
    crew._note(running.actor_started(pool.members[0], "handle"))
    assert crew.run() == 4 * 32


def test_a_union_of_readings_gets_on_with_the_one_that_is_due() -> None:
    inputs = [Map(f"map{i}", WORK, Read(f"read{i}", WORK, range(2))) for i in range(3)]
    each = {f"read{i}": 16 for i in range(3)} | {f"map{i}": 1 for i in range(3)}
    assert Crew(scheduler(Union("union", inputs), budget=2 * MIB), each).run() == 3 * 2 * 16


def test_a_task_further_down_runs_on_the_processor_of_one_that_is_held_back() -> None:
    running = scheduler(Map("map", WORK, Read("read", WORK, range(1))), cpus=1, budget=MIB)
    [read] = started(running.begin())
    assert not read.borrows
    [work] = started(running.made(read, item()))
    assert read.paused
    assert work.borrows
    assert not started(running.made(work, item()))
    assert read.paused, "its processor is in use"
    running.ended(work)
    assert Resume(read) in running.take()[1]


def test_reading_leaves_half_of_the_room_to_what_becomes_of_it() -> None:
    read = Read("read", WORK, range(1))
    first = Map("first", WORK, read)
    last = Map("last", WORK, first)
    assert shares(last) == {last: 1.0, first: 0.75, read: 0.5}
    assert shares(read) == {read: 1.0}


def test_no_task_is_started_while_workers_have_more_memory_than_they_may() -> None:
    running = scheduler(Read("read", WORK, range(9)), cpus=2, budget=100 * MIB, memory=100 * MIB)
    first, second = started(running.begin())
    running.update_memory((LAPTOP, 1), 60 * MIB)
    running.update_memory((LAPTOP, 2), 60 * MIB)
    assert running.short_of_memory
    assert not started(running.ended(first))
    running.update_memory((LAPTOP, 2), 10 * MIB)
    assert len(started(running.ended(second))) == 2


def test_a_task_is_held_back_while_workers_have_more_memory_than_they_may() -> None:
    running = scheduler(Read("read", WORK, range(1)), budget=100 * MIB, memory=100 * MIB)
    [task] = started(running.begin())
    running.made(task, item())
    assert not task.paused
    running.update_memory((LAPTOP, 1), 200 * MIB)
    running.made(task, item())
    assert task.paused
    running.update_memory((LAPTOP, 1), 0)
    assert Resume(task) in running.take()[1]


def test_whatever_memory_workers_have_one_task_goes_on_at_a_time() -> None:
    running = scheduler(Map("map", WORK, Read("read", WORK, range(5))), cpus=4, memory=1)
    running.update_memory((LAPTOP, 1), 100 * MIB)
    crew = Crew(running, {"read": 3, "map": 1})
    assert crew.run() == 15
    assert crew.most_going == 1


def test_the_memory_of_a_worker_that_is_gone_does_not_count() -> None:
    running = scheduler(Read("read", WORK, range(1)), memory=MIB)
    running.update_memory((LAPTOP, 1), 2 * MIB)
    assert running.short_of_memory
    running.update_memory((LAPTOP, 1), 0)
    assert not running.short_of_memory


def test_nobody_is_let_go_on_while_the_first_actor_starts() -> None:
    pool = ActorPool(WORK, 1, 1, 1)
    running = scheduler(Map("map", WORK, Read("read", WORK, range(1)), pool=pool), budget=MIB)
    [read] = started(running.begin())
    assert not started(running.made(read, item()))
    assert read.paused
    assert len(started(running.actor_started(pool.members[0], "handle"))) == 1
    assert read.paused


def test_a_task_that_asks_for_more_processors_than_there_are_is_left_to_the_engine() -> None:
    read = Read("read", WORK, range(1))
    read.cpus = 4
    [task] = started(scheduler(read, cpus=2).begin())
    assert not task.borrows
