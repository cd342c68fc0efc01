"""Processes that come and go: drivers, jobs, workers."""

from __future__ import annotations

from skate._engine.local.wire import messages as m
from skate._engine.local.wire.messages import Question
from tests.engine.local.state.world import World, result


def test_every_driver_is_a_job_of_its_own() -> None:
    world = World()
    assert world.driver().job != world.driver().job


def test_who_only_looks_is_no_job() -> None:
    world = World()
    driver = world.driver()
    watcher = world.driver(observer=True, hidden=True)
    jobs = watcher.ask(Question.JOBS)
    assert [row["job_id"] for row in jobs] == [driver.job]
    workers = watcher.ask(Question.WORKERS)
    assert [row["worker_id"] for row in workers] == [driver.number]


def test_a_private_node_ends_with_its_driver() -> None:
    world = World(private=True)
    driver = world.driver()
    driver.leave(None)
    assert [stop.reason for stop in world.commanded(m.Stop)] == ["the driver is gone"]


def test_a_private_node_does_not_end_with_who_only_looked() -> None:
    world = World(private=True)
    world.driver(observer=True).leave(None)
    assert world.commanded(m.Stop) == []


def test_a_long_lived_node_goes_on_without_drivers() -> None:
    world = World(private=False)
    world.driver().leave(None)
    assert world.commanded(m.Stop) == []


def test_the_workers_of_a_job_are_killed_when_it_ends() -> None:
    world = World(cpus=2)
    first, second = world.driver(), world.driver()
    mine, other = world.start_worker_for(first), world.start_worker_for(second)
    first.leave(None)
    assert world.killed() == [mine.number]
    assert other.number in world.machine.peers


def test_a_worker_that_is_being_started_is_killed_when_its_job_ends() -> None:
    world = World()
    driver, _ = world.driver(), world.driver()
    driver.submit()
    (start,) = world.commanded(m.StartWorker)
    driver.leave(None)
    assert world.killed() == [start.number]
    world.tell(0, m.WorkerGone(start.number, -9))
    assert start.number not in world.machine.peers


def test_a_process_that_says_goodbye_is_gone() -> None:
    world = World()
    driver, _ = world.driver(), world.driver()
    driver.say(m.Goodbye())
    assert driver.number not in world.machine.peers
    driver.leave()


def test_a_driver_that_left_is_not_told_of_its_actors() -> None:
    world = World()
    driver, _ = world.driver(), world.driver()
    driver.create()
    world.start_worker().become()
    driver.told(m.ActorUpdate)
    driver.leave(None)
    assert driver.told(m.ActorUpdate) == []


def test_a_warning_is_printed_by_every_driver() -> None:
    world = World()
    first, second = world.driver(), world.driver()
    world.machine.warn("careful")
    world.route(world.machine.take())
    assert [process.told(m.Output)[0].lines for process in (first, second)] == [["careful"]] * 2


def test_several_messages_may_be_handled_before_anything_is_scheduled() -> None:
    world = World(cpus=1)
    driver = world.driver()
    template = driver.define()
    tasks = [driver.ids.task() for _ in range(2)]
    for task in tasks:
        world.machine.handle(driver.number, m.Submit(task, template, b""), world.now)
    world.machine.handle(driver.number, m.Cancel(tasks[0]), world.now)
    assert not any(receiver == 0 for receiver, _ in world.machine.take())
    world.machine.settle()
    world.route(world.machine.take())
    assert world.start_worker().tasks == [tasks[1]]


def test_an_object_survives_the_worker_that_made_it() -> None:
    world = World(cpus=1)
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    value = worker.put_shared(2)
    worker.finish_with(task, m.Result(1, b"box", contains=[value]))
    worker.leave()
    driver.hold(value)
    located = driver.pin(value)
    assert located is not None
    assert not located.error
    assert driver.value_of(result(task)) == b"box"


def test_nothing_is_kept_for_a_job_that_is_over() -> None:
    world = World()
    driver, other = world.driver(), world.driver()
    worker = world.start_worker_for(driver)
    driver.leave(None)
    worker.leave()
    assert {cls.job for cls in world.machine.scheduler.classes.values()} == set()
    assert world.machine.scheduler.templates == {}
    task = other.submit()
    assert world.start_worker().tasks == [task]


def test_what_a_worker_submits_after_its_job_has_ended_is_not_run() -> None:
    world = World(cpus=2)
    driver, _ = world.driver(), world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    template = worker.define()
    driver.leave(None)
    worker.submit(template, parent=parent)
    worker.submit(parent=parent)
    worker.create()
    assert world.unfinished == []
    assert world.commanded(m.StartWorker) == []


def test_a_placement_group_that_a_worker_made_after_its_job_has_ended_is_removed() -> None:
    world = World(cpus=2)
    driver, _ = world.driver(), world.driver()
    driver.submit()
    worker = world.start_worker()
    driver.leave(None)
    worker.reserve({"CPU": 1.0})
    worker.leave()
    assert world.available() == 2


def test_a_job_is_over_when_the_last_task_of_its_detached_actor_is_cancelled() -> None:
    world = World(cpus=1)
    driver, other = world.driver(), world.driver()
    driver.create(detached=True)
    worker = world.start_worker()
    worker.become()
    other.submit()
    world.start_worker()
    driver.leave(None)
    child = worker.submit()  # waits for the only CPU
    other.hold(result(child))
    worker.leave()
    assert driver.job in {cls.job for cls in world.machine.scheduler.classes.values()}
    other.say(m.Cancel(child))
    assert {cls.job for cls in world.machine.scheduler.classes.values()} == {other.job}


def test_what_a_detached_actor_needs_is_kept_when_its_job_is_over() -> None:
    world = World()
    driver, _ = world.driver(), world.driver()
    actor = driver.create(detached=True, max_restarts=1)
    worker = world.start_worker()
    worker.become()
    driver.leave(None)
    worker.leave()
    assert world.start_worker().become() == actor
