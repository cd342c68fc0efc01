"""Actors: creation, names, restarts, death, handles."""

from __future__ import annotations

from typing import Any

import pytest

from skate._base.object_ref import ERROR, SHARED
from skate._engine.local.session.task_progress import run_id
from skate._engine.local.state.records import ACTOR, IDLE
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.messages import Question
from skate.exceptions import ActorDiedError, ActorUnschedulableError, ObjectFreedError
from tests.engine.local.state.world import Process, Worker, World, handle, load_error, result


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def alive(driver: Process, **options: Any) -> tuple[bytes, Worker]:
    """Return a new actor and its worker."""
    driver.create(**options)
    worker = driver.world.start_worker()
    return worker.become(), worker


def last_update(process: Process) -> m.ActorUpdate:
    return [message for message in process.heard if isinstance(message, m.ActorUpdate)][-1]


# ---------------------------------------------------------------- creation


def test_a_worker_becomes_the_actor_and_its_creator_is_told_where(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    update = last_update(driver)
    assert (update.actor, update.state, update.address) == (actor, "ALIVE", f"w{worker.number}")
    assert update.incarnation == 1
    assert world.machine.peers[worker.number].state is ACTOR


def test_an_actor_holds_its_resources_as_long_as_it_lives(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver, spec={"resources": {"CPU": 1.0}})
    assert world.available() == 0
    driver.say(m.KillActor(actor))
    assert world.available() == 1
    worker.leave()
    assert world.available() == 1


def test_a_constructor_waits_for_its_arguments(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    driver.create(needs=[result(task)])
    worker.finish(task, b"1")
    assert worker.actor is not None
    assert [argument.data for argument in worker.actor.run.arguments] == [b"1"]


def test_an_actor_whose_argument_is_an_error_is_dead(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    actor = driver.create(needs=[result(task)])
    worker.fail(task, b"oops")
    assert driver.state_of(actor) == "DEAD"
    assert last_update(driver).error == b"oops"


def test_a_constructor_that_raises_kills_the_actor(world: World) -> None:
    driver = world.driver()
    actor = driver.create(max_restarts=3)
    worker = world.start_worker()
    assert worker.actor is not None
    worker.finish_with(worker.actor.run.task, m.Result(ERROR, b"oops"), failed="ValueError")
    assert (driver.state_of(actor), last_update(driver).error) == ("DEAD", b"oops")
    assert world.killed() == [worker.number]


def test_an_actor_that_asks_for_too_much_is_dead_at_once(world: World) -> None:
    driver = world.driver()
    actor = driver.create(spec={"resources": {"CPU": 9.0}})
    assert driver.state_of(actor) == "DEAD"
    assert isinstance(load_error(last_update(driver).error), ActorUnschedulableError)


def test_arguments_of_an_actor_that_is_not_restarted_are_let_go_of(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    driver.create(needs=[value])
    driver.release(value)
    world.start_worker().become()
    assert not world.knows(value)


def test_arguments_of_an_actor_that_may_restart_are_kept(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    driver.create(needs=[value], max_restarts=1)
    driver.release(value)
    world.start_worker().become()
    assert world.knows(value)


def test_an_actor_and_tasks_of_the_same_shape_share_workers(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    actor = driver.create(spec={"resources": {"CPU": 1.0}})
    worker = world.start_worker()
    worker.finish(task)
    assert worker.actor is not None
    assert worker.actor.actor == actor


def test_a_process_with_a_handle_does_not_become_the_actor(world: World) -> None:
    driver = world.driver()
    creator = world.start_worker_for(driver)
    actor = creator.create()  # kept in a global variable when its task was over
    assert creator.actor is None
    other = world.start_worker()
    other.become()
    creator.release(handle(actor))
    assert other.told(m.Exit)


def test_an_actor_that_no_idle_worker_may_become_holds_nothing_up_once_it_is_dead(world: World) -> None:
    driver = world.driver()
    creator = world.start_worker_for(driver)
    actor = creator.create()
    task = driver.submit(resources={})
    assert creator.tasks == []
    driver.say(m.KillActor(actor))
    assert creator.tasks == [task]


# ---------------------------------------------------------------- names


def test_an_actor_is_found_by_name(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor = driver.create(name="amy", namespace="here", metadata=b"methods")
    found = other.ask(Question.ACTOR_BY_NAME, text="here\namy")
    assert (found["actor"], found["metadata"]) == (actor, b"methods")
    assert other.ask(Question.NAMED_ACTORS, text="here") == [{"name": "amy", "namespace": "here"}]


def test_a_name_that_nobody_has_is_not_found(world: World) -> None:
    driver = world.driver()
    driver.create(name="amy", namespace="here")
    with pytest.raises(ValueError, match="Failed to look up actor with name 'amy'"):
        driver.ask(Question.ACTOR_BY_NAME, text="there\namy")


def test_a_name_is_taken_once(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.create(name="amy")
    other.create(name="amy")
    with pytest.raises(ValueError, match="The name amy is already taken"):
        other.answered()
    assert len(world.machine.actors.table) == 1


def test_the_same_name_in_another_namespace_is_free(world: World) -> None:
    driver = world.driver()
    driver.create(name="amy", namespace="a")
    actor = driver.create(name="amy", namespace="b")
    assert driver.answered()["actor"] == actor


def test_an_existing_actor_is_returned_to_who_does_not_insist_on_a_new_one(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor = driver.create(name="amy")
    new = other.create(name="amy", get_if_exists=True)
    assert other.answered()["actor"] == actor != new


def test_a_name_is_free_again_when_its_actor_is_dead(world: World) -> None:
    driver = world.driver()
    first = driver.create(name="amy")
    driver.say(m.KillActor(first))
    second = driver.create(name="amy")
    assert driver.answered()["actor"] == second


def test_a_name_is_kept_while_its_actor_restarts(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver, name="amy", max_restarts=1)
    worker.leave()
    assert driver.ask(Question.ACTOR_BY_NAME, text="\namy")["actor"] == actor


# ---------------------------------------------------------------- death and restarts


def test_an_actor_is_restarted_as_often_as_it_may_be(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver, max_restarts=1)
    worker.leave()
    assert driver.state_of(actor) == "RESTARTING"
    second = world.start_worker()
    assert second.actor is not None
    assert second.actor.restarts == 1
    second.become()
    assert (driver.state_of(actor), last_update(driver).incarnation) == ("ALIVE", 2)
    second.leave()
    assert driver.state_of(actor) == "DEAD"


def test_an_actor_that_crashes_in_its_constructor_is_restarted(world: World) -> None:
    driver = world.driver()
    actor = driver.create(max_restarts=1)
    world.start_worker().leave()
    assert world.start_worker().become() == actor


def test_an_actor_without_restarts_is_dead_with_the_story_of_its_process(world: World) -> None:
    driver = world.driver()
    _, worker = alive(driver)
    worker.leave(-11)
    error = load_error(last_update(driver).error)
    assert isinstance(error, ActorDiedError)
    assert "last words" in str(error)


def test_a_killed_actor_is_not_restarted(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver, max_restarts=5)
    driver.say(m.KillActor(actor))
    assert (driver.state_of(actor), world.killed()) == ("DEAD", [worker.number])
    worker.leave()
    assert world.commanded(m.StartWorker) == []


def test_an_actor_killed_without_no_restart_comes_back(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver, max_restarts=5)
    driver.say(m.KillActor(actor, no_restart=False))
    assert world.killed() == [worker.number]
    worker.leave()
    assert driver.state_of(actor) == "RESTARTING"


def test_an_actor_killed_before_it_was_made_is_never_made(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    driver.say(m.KillActor(actor))
    assert driver.state_of(actor) == "DEAD"
    assert world.start_worker().actor is None


def test_an_actor_that_exits_is_not_restarted(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver, max_restarts=5)
    worker.say(m.ActorExit(actor, "exit_actor()"))
    assert (driver.state_of(actor), last_update(driver).reason) == ("DEAD", "exit_actor()")
    assert world.killed() == []
    worker.leave(0)
    assert world.commanded(m.StartWorker) == []


def test_an_actor_whose_argument_was_freed_cannot_restart(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    driver.create(needs=[value], max_restarts=1)
    worker = world.start_worker()
    actor = worker.become()
    driver.say(m.Free([value]))
    worker.leave()
    assert driver.state_of(actor) == "DEAD"
    assert isinstance(load_error(last_update(driver).error), ObjectFreedError)


def test_who_asks_for_a_dead_actor_is_told_why(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver)
    worker.leave()
    other.say(m.ActorWatch(actor))
    assert other.state_of(actor) == "DEAD"
    other.say(m.ActorWatch(b"x" * 16))
    assert other.state_of(b"x" * 16) == "DEAD"


def test_watchers_are_told_of_every_change(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.create(max_restarts=1)
    worker = world.start_worker()
    assert worker.actor is not None
    other.say(m.ActorWatch(worker.actor.actor))
    worker.become()
    worker.leave()
    assert [update.state for update in other.told(m.ActorUpdate)] == [
        "PENDING_CREATION",
        "ALIVE",
        "RESTARTING",
    ]


# ---------------------------------------------------------------- handles


def test_an_actor_ends_when_the_last_handle_is_gone(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver)
    other.hold(handle(actor))
    driver.release(handle(actor))
    assert worker.told(m.Exit) == []
    other.release(handle(actor))
    assert [exit.reason for exit in worker.told(m.Exit)] == ["out of scope"]
    assert driver.state_of(actor) == "DEAD"
    worker.leave(0)
    assert world.commanded(m.StartWorker) == []


def test_an_actor_without_handles_is_not_made(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    driver.release(handle(actor))
    assert driver.state_of(actor) == "DEAD"
    assert world.start_worker().actor is None


def test_a_handle_in_the_arguments_of_a_task_keeps_the_actor(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    task = driver.submit(inside=[handle(actor)])
    driver.release(handle(actor))
    assert driver.state_of(actor) == "ALIVE"
    world.start_worker().finish(task)
    assert driver.state_of(actor) == "DEAD"
    assert worker.told(m.Exit)


def test_a_handle_inside_an_object_keeps_the_actor(world: World) -> None:
    driver = world.driver()
    actor, _ = alive(driver)
    value = driver.put(inside=[handle(actor)])
    driver.release(handle(actor))
    assert driver.state_of(actor) == "ALIVE"
    driver.release(value)
    assert driver.state_of(actor) == "DEAD"


def test_a_handle_that_only_the_actor_itself_has_does_not_keep_it(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    worker.hold(handle(actor))
    driver.release(handle(actor))
    assert worker.told(m.Exit)


def test_an_actor_with_its_own_handle_ends_when_a_task_lets_go_of_the_last_other_one(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    worker.hold(handle(actor))
    task = driver.submit(inside=[handle(actor)])
    driver.release(handle(actor))
    assert not worker.told(m.Exit)
    world.start_worker().finish(task)
    assert worker.told(m.Exit)


def test_an_actor_with_its_own_handle_ends_when_an_object_lets_go_of_the_last_other_one(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    worker.hold(handle(actor))
    value = driver.put(inside=[handle(actor)])
    driver.release(handle(actor))
    assert not worker.told(m.Exit)
    driver.release(value)
    assert worker.told(m.Exit)


def test_an_actor_ends_when_the_last_process_with_a_handle_dies(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    holder = world.start_worker()
    actor = holder.create()
    assert holder.tasks == [task]
    worker = world.start_worker()
    worker.become()
    holder.leave()
    assert worker.told(m.Exit)
    assert world.machine.actors.table[actor].state == "DEAD"


def test_a_detached_actor_needs_no_handle_and_leaves_nothing_behind_when_killed(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver, detached=True, name="amy")
    driver.leave()
    assert worker.told(m.Exit) == []
    assert world.killed() == []
    other.say(m.KillActor(actor))
    worker.leave()
    assert not world.knows(handle(actor))


def test_a_detached_actor_is_restarted_after_its_job_has_ended(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver, detached=True, max_restarts=1)
    driver.leave()
    worker.leave()
    assert world.start_worker().become() == actor
    assert other.ask(Question.ACTOR_BY_ID, subject=actor)["state"] == "ALIVE"


def test_tasks_of_a_detached_actor_go_on_after_its_job_has_ended(world: World) -> None:
    driver, _ = world.driver(), world.driver()
    _, worker = alive(driver, detached=True)
    queued, running = worker.submit(), worker.submit()
    runner = world.start_worker()
    assert runner.tasks == [queued]
    driver.leave()
    assert world.killed() == [runner.number]
    runner.leave()
    assert worker.value_of(result(queued)) is not None, "its worker was killed"
    world.start_worker().finish(running, b"fine")
    assert worker.value_of(result(running)) == b"fine"


def test_idle_workers_that_a_detached_actor_left_end_after_a_while(world: World) -> None:
    driver, _ = world.driver(), world.driver()
    _, worker = alive(driver, detached=True)
    driver.leave()
    task = worker.submit()
    helper = world.start_worker()
    helper.finish(task)
    assert world.machine.peers[helper.number].state is IDLE
    world.pass_time(61)
    assert helper.told(m.Exit)


def test_the_actors_of_a_job_end_with_it(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver, max_restarts=3)
    other.say(m.ActorWatch(actor))
    driver.leave()
    assert world.killed().count(worker.number) >= 1
    assert other.state_of(actor) == "DEAD"
    worker.leave()
    assert world.commanded(m.StartWorker) == []


# ---------------------------------------------------------------- replies by way of the node


def test_a_reply_with_shared_memory_goes_by_way_of_the_node(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    call = driver.ids.call(actor)
    granted = worker.allocate(1)
    assert granted is not None
    reply = m.Reply(call, [m.Result(SHARED, segment=granted.segment, size=10)])
    worker.say(m.ReplyVia(driver.number, reply))
    assert [told.task for told in driver.told(m.Reply)] == [call]
    assert driver.pin(result(call)) is not None


def test_who_else_waits_for_a_reply_is_told_too(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver)
    call = driver.ids.call(actor)
    driver.say(m.Register(result(call), 0))
    other.hold(result(call))
    other.say(m.Subscribe([result(call)]))
    value = worker.put()
    worker.say(m.ReplyVia(driver.number, m.Reply(call, [m.Result(1, b"v", contains=[value])])))
    assert other.value_of(result(call)) == b"v"
    assert driver.value_of(result(call)) is None, "the caller has the reply itself"


def test_the_node_does_not_keep_what_the_caller_keeps_to_itself(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    call = driver.ids.call(actor)
    worker.say(m.ReplyVia(driver.number, m.Reply(call, [m.Result(1, b"small")])))
    assert not world.knows(result(call))


def test_a_reply_that_is_retried_does_not_settle_the_object(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver)
    call = driver.ids.call(actor)
    driver.say(m.Register(result(call), 0))
    other.hold(result(call))
    other.say(m.Subscribe([result(call)]))
    worker.say(m.ReplyVia(driver.number, m.Reply(call, [m.Result(ERROR, b"oops")], retry=True)))
    assert other.value_of(result(call)) is None
    driver.say(m.Register(result(call), 1, b"right"))
    assert other.value_of(result(call)) == b"right"


def test_the_memory_of_a_reply_to_a_caller_that_is_gone_is_used_again(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor, worker = alive(driver)
    granted = worker.allocate(1)
    assert granted is not None
    call = other.ids.call(actor)
    other.leave()
    result_ = m.Result(SHARED, segment=granted.segment, size=10)
    worker.say(m.ReplyVia(other.number, m.Reply(call, [result_])))
    again = worker.allocate(1)
    assert again is not None
    assert again.segment == granted.segment


def test_an_item_of_a_generator_goes_by_way_of_the_node(world: World) -> None:
    driver = world.driver()
    actor, worker = alive(driver)
    call = driver.ids.call(actor)
    value = worker.put()
    item = m.Result(1, b"v", contains=[value])
    worker.say(m.ReplyVia(driver.number, m.Reply(call, [item]), item=3, limited=True))
    (told,) = driver.told(m.CallItem)
    assert (told.task, told.index, told.limited) == (call, 3, True)
    assert world.knows(result(call, 3))


def test_a_worker_that_dies_before_the_constructor_begins_takes_no_restart(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    for _ in range(3):
        worker = world.start_worker()
        world.tell(0, m.WorkerGone(worker.number, -9, last_begun=b""))
    assert driver.state_of(actor) != "DEAD"
    worker = world.start_worker()
    begun = worker.actor.run
    world.tell(0, m.WorkerGone(worker.number, -9, last_begun=run_id(begun.task, begun.attempt)))
    assert driver.state_of(actor) == "DEAD"
