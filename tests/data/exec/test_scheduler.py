"""The next step of a running plan, decided without processes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skate.data._exec.actor_pool import ActorPool
from skate.data._exec.barrier_operators import Barrier
from skate.data._exec.items import Item
from skate.data._exec.limits import Limits
from skate.data._exec.operators import Map, Operator, Read, Values
from skate.data._exec.scheduler import Cancel, Instruction, Resume, Scheduler, Start, StartActor
from skate.data._exec.streaming_operators import Limit, Lookup, Union, Zip
from skate.data._exec.tasks import Task

MIB = 2**20
WORK: Any = object()  # flows never look into it


def item(rows: int = 10, size: int = MIB) -> Item:
    return Item("block", rows, size, pa.schema({"a": pa.int64()}))


def scheduler(root: Operator, *, cpus: float = 2, budget: int = 100 * MIB) -> Scheduler:
    return Scheduler(root, Limits(cpus, budget), MIB)


def started(instructions: list[Instruction]) -> list[Task]:
    return [each.task for each in instructions if isinstance(each, Start)]


def taken(running: Scheduler) -> list[Item]:
    found = []
    while (one := running.take()[0]) is not None:
        found.append(one)
    return found


def test_what_is_there_can_be_taken_before_anything_has_happened() -> None:
    one = item()
    running = scheduler(Union("union", [Values("values", [one])]))
    assert running.take()[0] is one


def test_as_many_tasks_start_as_there_are_cpus() -> None:
    running = scheduler(Read("read", WORK, range(5)), cpus=2)
    assert [task.argument for task in started(running.begin())] == [0, 1]


def test_a_task_that_ends_makes_room_for_the_next() -> None:
    running = scheduler(Read("read", WORK, range(3)), cpus=2)
    first, _ = started(running.begin())
    assert [task.argument for task in started(running.ended(first))] == [2]


def test_items_come_in_the_order_of_the_source_whoever_is_faster() -> None:
    running = scheduler(Read("read", WORK, range(2)))
    slow, fast = started(running.begin())
    late, early = item(), item()
    running.made(fast, late)
    running.ended(fast)
    assert taken(running) == []
    running.made(slow, early)
    running.ended(slow)
    assert taken(running) == [early, late]
    assert running.finished


def test_without_order_an_item_is_passed_on_at_once() -> None:
    running = scheduler(Read("read", WORK, range(2), in_order=False))
    slow, fast = started(running.begin())
    one = item()
    running.made(fast, one)
    assert taken(running) == [one]
    running.ended(fast)
    running.ended(slow)
    assert running.finished


def test_what_is_downstream_goes_first() -> None:
    read = Read("read", WORK, range(3))
    running = scheduler(Map("map", WORK, read), cpus=1)
    [first] = started(running.begin())
    running.made(first, item())
    [following] = started(running.ended(first))
    assert following.operator.name == "map"


def test_nothing_is_started_beyond_the_budget() -> None:
    running = scheduler(Read("read", WORK, range(10)), cpus=4, budget=3 * MIB)
    assert len(started(running.begin())) == 3


def test_a_consumer_that_takes_nothing_stops_the_reading() -> None:
    running = scheduler(Read("read", WORK, range(100)), cpus=2, budget=4 * MIB)
    tasks = started(running.begin())
    made = 0
    while tasks:
        task = tasks.pop(0)
        running.made(task, item())
        made += 1
        tasks += started(running.ended(task))
    assert made == 4
    one, instructions = running.take()
    assert one is not None
    assert not started(instructions), "the consumer still has the block"
    _, instructions = running.take()
    assert len(started(instructions)) == 1


def test_a_task_is_held_back_when_what_it_makes_is_over_budget() -> None:
    running = scheduler(Read("read", WORK, range(1)), budget=2 * MIB)
    [task] = started(running.begin())
    running.made(task, item())
    running.made(task, item())
    assert not task.paused
    running.made(task, item())
    assert task.paused
    running.take()
    assert task.paused, "the consumer still has the block"
    _, instructions = running.take()
    assert Resume(task) in instructions


def test_a_block_larger_than_the_budget_gets_through() -> None:
    read = Read("read", WORK, range(2))
    running = scheduler(Map("map", WORK, read), cpus=1, budget=1)
    seen = 0
    tasks = started(running.begin())
    while not running.finished:
        task = tasks.pop(0)
        tasks += started(running.made(task, item()))
        tasks += started(running.ended(task))
        one, instructions = running.take()
        seen += one is not None
        tasks += started(instructions)
        if one is not None:
            tasks += started(running.take()[1])
    assert seen == 2


def test_a_limit_stops_what_is_upstream() -> None:
    read = Read("read", WORK, range(10))
    running = scheduler(Limit("limit", read, 15), cpus=2)
    first, second = started(running.begin())
    running.made(first, item(rows=10))
    third = started(running.ended(first))[0]
    instructions = running.made(second, item(rows=10))
    assert Cancel(second) in instructions
    assert Cancel(third) in instructions
    assert [one.rows for one in taken(running)] == [10, 5]
    assert running.finished
    assert running.ended(second) == []


def test_a_limit_stops_a_task_whose_block_is_over_the_memory_limit() -> None:
    running = scheduler(Limit("limit", Read("read", WORK, range(1)), 10), budget=MIB)
    (only,) = started(running.begin())
    assert running.made(only, item(rows=10, size=2 * MIB)) == [Cancel(only)]
    assert not only.paused
    assert [one.rows for one in taken(running)] == [10]
    assert running.finished


def test_a_limit_of_nothing_reads_nothing() -> None:
    running = scheduler(Limit("limit", Read("read", WORK, range(3)), 0))
    assert started(running.begin()) == []
    assert running.finished


def test_a_union_passes_on_its_first_input_first() -> None:
    first, second = Read("first", WORK, range(1)), Read("second", WORK, range(1))
    running = scheduler(Union("union", [first, second]))
    of_first, of_second = started(running.begin())
    later, earlier = item(), item()
    running.made(of_second, later)
    running.ended(of_second)
    assert taken(running) == []
    running.made(of_first, earlier)
    running.ended(of_first)
    assert taken(running) == [earlier, later]


def test_rows_are_zipped_as_far_as_both_sides_have_come() -> None:
    left = Values("left", [item(rows=3), item(rows=5)])
    right = Values("right", [item(rows=6), item(rows=2)])
    running = scheduler(Zip("zip", WORK, [left, right]), cpus=8)
    tasks = started(running.begin())
    assert [[(one.start, one.rows) for one in task.inputs] for task in tasks] == [
        [(0, 3), (0, 3)],
        [(0, 3), (3, 3)],
        [(3, 2), (0, 2)],
    ]


def test_zipping_different_numbers_of_rows_is_an_error() -> None:
    left, right = Values("left", [item(rows=3)]), Values("right", [item(rows=4)])
    with pytest.raises(ValueError, match="3, 4"):
        scheduler(Zip("zip", WORK, [left, right])).begin()


def test_small_items_share_a_task_where_a_batch_needs_more_rows() -> None:
    source = Values("values", [item(rows=4) for _ in range(5)])
    running = scheduler(Map("map", WORK, source, min_rows=10), cpus=8)
    assert [sum(one.rows for one in task.inputs) for task in started(running.begin())] == [12, 8]


def test_a_look_up_waits_for_its_small_side_and_then_takes_items_as_they_come() -> None:
    small = Read("small", WORK, range(1))
    large = Values("large", [item(), item()])
    running = scheduler(Lookup("lookup", WORK, large, small), cpus=8)
    [reading] = started(running.begin())
    words = item(rows=3)
    running.made(reading, words)
    tasks = started(running.ended(reading))
    assert [len(task.inputs) for task in tasks] == [2, 2]
    assert all(task.inputs[1] is words and task.argument == (1, 1) for task in tasks)
    for task in tasks:
        running.made(task, item())
        running.ended(task)
    assert len(taken(running)) == 2
    assert running.finished
    assert running.used == 0


def test_rounds_of_an_exchange_follow_each_other() -> None:
    def exchange(items: list[Item]) -> Any:
        made = yield [(WORK, "cut", [one]) for one in items]
        return [(WORK, "join", [each[0] for each in made])]

    running = scheduler(Barrier("gather", [Values("values", [item(), item()])], exchange, WORK))
    first, second = started(running.begin())
    assert [first.argument, second.argument] == ["cut", "cut"]
    pieces = [item(), item()]
    running.made(second, pieces[1])
    running.ended(second)
    running.made(first, pieces[0])
    [last] = started(running.ended(first))
    assert (last.argument, last.inputs) == ("join", pieces)
    result = item()
    running.made(last, result)
    running.ended(last)
    assert taken(running) == [result]
    assert running.finished


def test_items_that_need_no_task_keep_their_place_in_the_last_round() -> None:
    there = [item(), item()]

    def exchange(items: list[Item]) -> Any:
        yield from ()
        return [there[0], (WORK, None, items), there[1]]

    running = scheduler(Barrier("gather", [Values("values", [item()])], exchange, WORK))
    [task] = started(running.begin())
    made = item()
    running.made(task, made)
    running.ended(task)
    assert taken(running) == [there[0], made, there[1]]
    assert running.finished


def test_what_is_gathered_is_not_held_back() -> None:
    def exchange(items: list[Item]) -> Any:
        yield from ()
        return list(items)

    running = scheduler(Barrier("gather", [Read("read", WORK, range(9))], exchange, WORK), cpus=1, budget=MIB)
    tasks = started(running.begin())
    while tasks:
        task = tasks.pop()
        running.made(task, item())
        assert not task.paused
        tasks += started(running.ended(task))
    assert len(taken(running)) == 9


def pooled(smallest: int, largest: int) -> tuple[Scheduler, list[StartActor], list[Task]]:
    pool = ActorPool(WORK, smallest, largest, smallest, tasks_per_actor=1)
    running = scheduler(Map("map", WORK, Values("values", [item() for _ in range(4)]), pool=pool), cpus=8)
    instructions = running.begin()
    return running, [each for each in instructions if isinstance(each, StartActor)], started(instructions)


def test_tasks_wait_for_the_actors_of_their_pool() -> None:
    running, actors, tasks = pooled(2, 2)
    assert len(actors) == 2
    assert tasks == []
    [task] = started(running.actor_started(actors[0].member, "handle"))
    assert task.actor is actors[0].member
    assert len(started(running.actor_started(actors[1].member, "handle"))) == 1


def test_a_pool_grows_while_work_waits_and_no_further_than_it_may() -> None:
    running, actors, _ = pooled(1, 2)
    assert len(actors) == 1
    instructions = running.actor_started(actors[0].member, "handle")
    more = [each for each in instructions if isinstance(each, StartActor)]
    if not more:
        more = [each for each in running.take()[1] if isinstance(each, StartActor)]
    assert len(more) == 1
    instructions = running.actor_started(more[0].member, "handle")
    assert not [each for each in (*instructions, *running.take()[1]) if isinstance(each, StartActor)]


def test_stopping_cancels_what_runs() -> None:
    running = scheduler(Read("read", WORK, range(3)), cpus=2)
    tasks = started(running.begin())
    assert running.stop() == [Cancel(task) for task in tasks]
    assert running.made(tasks[0], item()) == []
