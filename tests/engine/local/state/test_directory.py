"""Objects: their holders, containers and subscribers, and the death of owners."""

from __future__ import annotations

import pytest

from skate._base.object_ref import ERROR, INLINE, PENDING
from skate._engine.local.wire import messages as m
from skate.exceptions import ObjectFreedError, ObjectLostError, OwnerDiedError
from tests.engine.local.state.world import World, load_error, result


@pytest.fixture
def world() -> World:
    return World(cpus=1)


# ---------------------------------------------------------------- holds


def test_an_object_lives_until_its_last_holder_lets_go(world: World) -> None:
    first, second = world.driver(), world.driver()
    value = first.put()
    second.hold(value)
    first.release(value)
    assert world.knows(value)
    second.release(value)
    assert not world.knows(value)


def test_a_process_that_ends_lets_go_of_everything(world: World) -> None:
    first, second = world.driver(), world.driver()
    value = first.put()
    second.hold(value)
    first.leave()
    assert world.knows(value)
    second.leave()
    assert not world.knows(value)


def test_letting_go_twice_is_harmless(world: World) -> None:
    first, second = world.driver(), world.driver()
    value = first.put()
    second.hold(value)
    first.release(value)
    first.release(value)
    assert world.knows(value)


def test_an_object_inside_another_lives_as_long_as_that(world: World) -> None:
    driver = world.driver()
    inner = driver.put()
    outer = driver.put(inside=[inner])
    driver.release(inner)
    assert world.knows(inner)
    driver.release(outer)
    assert not world.knows(inner)


def test_a_long_chain_of_objects_is_freed(world: World) -> None:
    driver = world.driver()
    first = last = driver.put()
    for _ in range(5000):
        last, inner = driver.put(inside=[last]), last
        driver.release(inner)
    assert world.knows(first)
    driver.release(last)
    assert not world.knows(first)


def test_an_object_inside_arguments_lives_until_the_task_is_over(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    task = driver.submit(inside=[value])
    driver.release(value)
    assert world.knows(value)
    worker = world.start_worker()
    worker.hold(value)
    worker.finish(task)
    assert world.knows(value), "the worker has taken a reference over"
    worker.release(value)
    assert not world.knows(value)


def test_an_object_that_was_pickled_elsewhere_is_kept_for_good(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    driver.say(m.Register(value, INLINE, b"value", pinned=True))
    driver.release(value)
    assert world.knows(value)


def test_a_result_inside_a_result_is_kept(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    worker.finish_with(parent, m.Result(INLINE, b"box", contains=[result(child)]))
    worker.release(result(child))
    assert worker.tasks == [child]
    worker.finish(child, b"inner")
    driver.hold(result(child))
    driver.say(m.Subscribe([result(child)]))
    assert driver.value_of(result(child)) == b"inner"


# ---------------------------------------------------------------- waiting


def test_who_subscribes_to_a_pending_object_is_told_when_it_is_ready(world: World) -> None:
    driver, other = world.driver(), world.driver()
    task = driver.submit()
    other.hold(result(task))
    other.say(m.Subscribe([result(task)]))
    assert other.value_of(result(task)) is None
    world.start_worker().finish(task, b"1")
    assert other.value_of(result(task)) == b"1"


def test_who_subscribes_to_a_ready_object_is_told_at_once(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put(b"1")
    other.hold(value)
    other.say(m.Subscribe([value]))
    assert other.value_of(value) == b"1"


def test_a_process_that_is_gone_is_told_nothing(world: World) -> None:
    driver, other = world.driver(), world.driver()
    task = driver.submit()
    other.hold(result(task))
    other.say(m.Subscribe([result(task)]))
    other.leave()
    world.start_worker().finish(task, b"1")
    assert other.value_of(result(task)) is None


# ---------------------------------------------------------------- objects that only their owner knew


def test_a_promoted_object_is_told_its_value_later(world: World) -> None:
    driver, other = world.driver(), world.driver()
    call = result(driver.ids.call(b"a" * 16))
    driver.say(m.Register(call, PENDING))
    other.hold(call)
    other.say(m.Subscribe([call]))
    driver.say(m.Register(call, INLINE, b"1"))
    assert other.value_of(call) == b"1"


def test_a_promoted_object_is_lost_with_its_owner(world: World) -> None:
    driver, other = world.driver(), world.driver()
    call = result(driver.ids.call(b"a" * 16))
    driver.say(m.Register(call, PENDING))
    other.hold(call)
    other.say(m.Subscribe([call]))
    driver.leave()
    assert isinstance(other.error_of(call), OwnerDiedError)


def test_an_object_with_a_value_is_not_lost_with_its_owner(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put(b"1")
    other.hold(value)
    driver.leave()
    other.say(m.Subscribe([value]))
    assert other.value_of(value) == b"1"


def test_the_owner_is_asked_about_an_object_that_the_node_has_not_heard_of(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = result(driver.ids.task())
    other.hold(value)
    other.say(m.Subscribe([value]))
    assert [asked.id for asked in driver.told(m.Inquire)] == [value]
    driver.say(m.Register(value, INLINE, b"1"))
    assert other.value_of(value) == b"1"


def test_an_object_that_its_owner_does_not_know_is_lost(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = result(driver.ids.task())
    other.hold(value)
    other.say(m.Subscribe([value]))
    driver.say(m.Inquire(value))
    assert isinstance(other.error_of(value), ObjectLostError)
    other.release(value)
    assert not world.knows(value)


def test_an_object_that_nobody_holds_and_nobody_knows_leaves_nothing_behind(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = result(driver.ids.task())
    other.say(m.Subscribe([value]))
    driver.say(m.Inquire(value))
    assert not world.knows(value)


def test_an_unknown_object_of_a_process_that_is_gone_is_lost_at_once(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = result(driver.ids.task())
    driver.leave()
    other.hold(value)
    other.say(m.Subscribe([value]))
    assert isinstance(other.error_of(value), OwnerDiedError)


def test_an_object_asked_for_is_lost_when_its_owner_dies_instead_of_answering(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = result(driver.ids.task())
    other.hold(value)
    other.say(m.Subscribe([value]))
    driver.leave()
    assert isinstance(other.error_of(value), OwnerDiedError)


def test_a_task_waits_for_an_object_whose_owner_has_yet_to_tell(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = result(driver.ids.task())
    task = other.submit(needs=[value])
    driver.say(m.Register(value, INLINE, b"1"))
    assert world.start_worker().tasks == [task]


def test_a_task_submitted_after_its_result_was_spoken_of_makes_it(world: World) -> None:
    driver, other = world.driver(), world.driver()
    task = driver.ids.task()
    other.hold(result(task))
    other.say(m.Subscribe([result(task)]))
    driver.say(m.Submit(task, driver.define(), b""))
    world.start_worker().finish(task, b"1")
    assert other.value_of(result(task)) == b"1"


def test_an_object_of_a_task_that_is_over_cannot_be_promised_again(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    world.start_worker().finish(task)
    driver.release(result(task))
    driver.hold(result(task))
    driver.say(m.Subscribe([result(task)]))
    driver.told(m.Ready)
    driver.say(m.Register(result(task), PENDING))
    assert isinstance(driver.error_of(result(task)), ObjectLostError)


def test_a_pending_group_may_be_pickled_elsewhere(world: World) -> None:
    driver = world.driver()
    driver.submit()
    world.start_worker()
    ready = result(driver.ids.task())
    driver.say(m.WatchGroup(driver.reserve({"CPU": 1.0}), ready, b"reserved"))
    driver.say(m.Register(ready, PENDING, pinned=True))
    assert driver.value_of(ready) is None


# ---------------------------------------------------------------- freeing on purpose


def test_a_freed_object_says_so_to_who_still_asks(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put()
    other.hold(value)
    driver.say(m.Free([value]))
    other.say(m.Subscribe([value]))
    assert isinstance(other.error_of(value), ObjectFreedError)


def test_freeing_a_pending_object_changes_nothing(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    driver.say(m.Free([result(task)]))
    world.start_worker().finish(task, b"1")
    assert driver.value_of(result(task)) == b"1"


def test_freeing_an_error_changes_nothing(world: World) -> None:
    driver = world.driver()
    value = result(driver.ids.task())
    driver.say(m.Register(value, ERROR, b"oops"))
    driver.say(m.Free([value]))
    driver.say(m.Subscribe([value]))
    assert driver.value_of(value) == b"oops"


def test_a_freed_object_is_forgotten_with_its_last_reference(world: World) -> None:
    driver = world.driver()
    inner = driver.put()
    value = driver.put(inside=[inner])
    driver.release(inner)
    driver.say(m.Free([value]))
    driver.release(value)
    assert not world.knows(value)
    assert not world.knows(inner)


def test_a_freed_shared_object_cannot_be_mapped(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared()
    driver.say(m.Free([value]))
    located = driver.pin(value)
    assert located is not None
    assert isinstance(load_error(located.error), ObjectFreedError)


# ---------------------------------------------------------------- readers that came too early


def test_a_reader_that_is_gone_is_not_told_where_an_object_lies(world: World) -> None:
    driver, reader = world.driver(), world.driver()
    task = driver.submit()
    worker = world.start_worker()
    assert reader.pin(result(task)) is None
    reader.leave()
    driver.release(result(task))
    assert world.knows(result(task))
    worker.fail(task)
    assert not world.knows(result(task))


def test_all_readers_of_an_object_that_nobody_holds_learn_the_same_error(world: World) -> None:
    driver, first, second = world.driver(), world.driver(), world.driver()
    task = driver.submit()
    worker = world.start_worker()
    for reader in (first, second):
        assert reader.pin(result(task)) is None
    driver.release(result(task))
    worker.fail(task, b"oops")
    for reader in (first, second):
        located = reader.location_of(result(task))
        assert located is not None
        assert located.error == b"oops"
    assert not world.knows(result(task))
    assert driver.told(m.Inquire) == []


def test_who_makes_an_object_again_holds_it_too(world: World) -> None:
    first, second = world.driver(), world.driver()
    value = result(first.ids.task(), 2)  # what a generator made before it failed, and was run again
    first.say(m.Register(value, INLINE, b"1"))
    second.say(m.Register(value, INLINE, b"2"))
    first.release(value)
    assert world.knows(value)
    second.release(value)
    assert not world.knows(value)
