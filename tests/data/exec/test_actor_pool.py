"""The size of an actor pool, decided without processes."""

from __future__ import annotations

from skate.data._exec.actor_pool import IDLE_TASKS_BEFORE_RELEASE, ActorPool, PoolActor
from skate.data._exec.operators import Map, Read, Values
from skate.data._exec.scheduler import Instruction, Scheduler, StartActor, StopActor
from tests.data.exec.test_scheduler import WORK, item, scheduler, started


def stopped(instructions: list[Instruction]) -> list[PoolActor]:
    return [each.member for each in instructions if isinstance(each, StopActor)]


def grown(pool: ActorPool, running: Scheduler, instructions: list[Instruction]) -> list[Instruction]:
    """Start every actor that is asked for; return all further instructions."""
    found: list[Instruction] = []
    waiting = list(instructions)
    while waiting:
        each = waiting.pop(0)
        found.append(each)
        if isinstance(each, StartActor):
            waiting += running.actor_started(each.member, "handle")
    return found


def test_an_actor_that_will_get_no_task_any_more_is_let_go_while_others_work() -> None:
    pool = ActorPool(WORK, 2, 2, 2, tasks_per_actor=1)
    running = scheduler(Map("map", WORK, Values("values", [item(), item()]), pool=pool), cpus=8)
    first, second = started(grown(pool, running, running.begin()))
    running.made(first, item())
    assert stopped(running.ended(first)) == [first.actor]
    assert pool.members == [second.actor]
    assert stopped(running.ended(second)) == [second.actor]
    assert pool.members == []


def test_no_actor_is_let_go_or_started_in_vain_before_the_input_has_ended() -> None:
    pool = ActorPool(WORK, 1, 2, 2, tasks_per_actor=1)
    running = scheduler(Map("map", WORK, Read("read", WORK, range(3)), pool=pool), cpus=1)
    [read] = started(grown(pool, running, running.begin()))
    assert stopped(running.ended(read)) == []
    assert len(pool.members) == 2


def test_a_pool_shrinks_to_its_smallest_size_when_it_has_had_little_to_do_for_a_while() -> None:
    pool = ActorPool(WORK, 1, 4, 4, tasks_per_actor=1)
    running = scheduler(
        Map("map", WORK, Read("read", WORK, range(10 * IDLE_TASKS_BEFORE_RELEASE)), pool=pool), cpus=1
    )
    [read] = started(grown(pool, running, running.begin()))
    sizes = []
    for _ in range(4 * IDLE_TASKS_BEFORE_RELEASE):
        instructions = running.made(read, item())
        instructions += running.ended(read)
        read, work = sorted(started(instructions), key=lambda task: task.operator.name == "map")
        running.made(work, item())
        running.ended(work)
        while running.take()[0] is not None:
            pass
        sizes.append(len(pool.members))
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (4, 1)


def test_a_pool_grows_again_when_work_waits() -> None:
    pool = ActorPool(WORK, 1, 2, 1, tasks_per_actor=1)
    running = scheduler(Map("map", WORK, Values("values", [item() for _ in range(4)]), pool=pool), cpus=8)
    grown(pool, running, running.begin())
    grown(pool, running, running.take()[1])
    assert len(pool.members) == 2
