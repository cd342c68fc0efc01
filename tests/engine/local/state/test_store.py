"""Shared memory: budget, reuse, spilling, restoring, and overflow to disk."""

from __future__ import annotations

import pytest

from skate._base.object_ref import SHARED
from skate._engine.local.session.segments import is_on_disk, on_disk
from skate._engine.local.state.store import OVERFLOW_TIMEOUT_S, TIDY_INTERVAL_S
from skate._engine.local.wire import messages as m
from skate.exceptions import ObjectFreedError
from tests.engine.local.state.world import PAGE, Process, World, load_error, result


@pytest.fixture
def world() -> World:
    return World(cpus=1, pages=4)


def spill(world: World, error: str = "") -> list[bytes]:
    """Carry out the spills that the machine wants."""
    moved = [command.id for command in world.commanded(m.Spill)]
    for id in moved:
        world.tell(0, m.Spilled(id, error))
    return moved


def restore(world: World, error: str = "", *, no_room: bool = False) -> list[bytes]:
    """Carry out the restores that the machine wants."""
    moved = world.commanded(m.Restore)
    for command in moved:
        world.tell(0, m.Restored(command.id, command.segment, error, no_room))
    return [command.id for command in moved]


def spilled_object(world: World, driver: Process, pages: float = 3) -> bytes:
    """Return an object that lies on disk only."""
    value = driver.put_shared(pages)
    driver.allocate(4)
    assert spill(world) == [value]
    answer = next(x for x in driver.heard if isinstance(x, m.Allocated) and x.size == 4 * PAGE)
    driver.say(m.Abandon(answer.segment))
    driver.told(m.Allocated)
    return value


# ---------------------------------------------------------------- writing


def test_memory_is_granted_in_whole_pages(world: World) -> None:
    driver = world.driver()
    granted = driver.allocate(1.5)
    assert granted is not None
    assert (granted.size, granted.reused) == (2 * PAGE, False)
    assert world.machine.store.used == 2 * PAGE


def test_an_object_larger_than_the_store_goes_to_disk_at_once(world: World) -> None:
    driver = world.driver()
    granted = driver.allocate(5)
    assert granted is not None
    assert is_on_disk(granted.segment)
    assert "does not fit the object store" in granted.reason
    assert world.machine.store.used == 0


def test_the_segment_of_a_freed_object_is_used_again_by_its_writer(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(2)
    first = driver.told(m.Allocated)[0].segment
    driver.release(value)
    assert world.commanded(m.DeleteSegment) == []
    again = driver.allocate(2)
    assert again is not None
    assert (again.segment, again.reused) == (first, True)


def test_a_segment_that_is_much_too_large_is_not_used_again() -> None:
    world = World(pages=100)
    driver = world.driver()
    driver.release(driver.put_shared(20))
    granted = driver.allocate(2)
    assert granted is not None
    assert not granted.reused


def test_a_segment_is_not_used_again_by_another_process(world: World) -> None:
    first, second = world.driver(), world.driver()
    first.release(first.put_shared(1))
    granted = second.allocate(1)
    assert granted is not None
    assert not granted.reused


def test_a_segment_that_is_not_used_after_all_is_given_back(world: World) -> None:
    driver = world.driver()
    granted = driver.allocate(2)
    assert granted is not None
    driver.say(m.Abandon(granted.segment))
    again = driver.allocate(2)
    assert again is not None
    assert again.segment == granted.segment


def test_half_the_budget_at_most_is_kept_for_later(world: World) -> None:
    driver = world.driver()
    values = [driver.put_shared(1) for _ in range(4)]
    driver.release(*values)
    assert world.machine.store.used == 2 * PAGE
    assert len(world.commanded(m.DeleteSegment)) == 2
    assert sum(len(drop.segments) for drop in driver.told(m.DropSegments)) == 2


def test_spare_segments_make_way_for_others(world: World) -> None:
    first, second = world.driver(), world.driver()
    first.release(first.put_shared(2))
    granted = second.allocate(4)
    assert granted is not None
    assert not is_on_disk(granted.segment)
    assert len(world.commanded(m.DeleteSegment)) == 1


def test_what_a_dead_process_had_allocated_is_free_again(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.allocate(2)
    driver.release(driver.put_shared(1))
    driver.leave()
    assert world.machine.store.used == 0
    granted = other.allocate(4)
    assert granted is not None
    assert not is_on_disk(granted.segment)


def test_the_segment_of_a_dead_writer_is_deleted_with_its_object(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(1)
    other.hold(value)
    driver.leave()
    assert world.machine.store.used == PAGE
    other.release(value)
    assert world.machine.store.used == 0


# ---------------------------------------------------------------- reading


def test_a_reader_is_told_where_an_object_lies(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(1)
    other.hold(value)
    located = other.pin(value)
    assert located is not None
    assert (located.segment, located.size) == (driver.told(m.Allocated)[0].segment, PAGE)


def test_a_shared_argument_is_pinned_for_the_worker(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(1)
    task = driver.submit(needs=[value])
    worker = world.start_worker()
    kinds = [type(x) for x in worker.heard if isinstance(x, m.Located | m.Run)]
    assert kinds == [m.Located, m.Run], "a worker knows where its arguments lie before it runs"
    driver.release(value)
    worker.finish(task)
    assert world.knows(value), "the worker maps it still"
    worker.say(m.Unpin([value]))
    worker.release(value)
    assert not world.knows(value)


def test_large_arguments_are_pinned_for_the_worker(world: World) -> None:
    driver = world.driver()
    args = driver.put_shared(1)
    task = driver.submit(args_object=args)
    driver.release(args)
    worker = world.start_worker()
    assert worker.runs[0].args_object == args
    assert worker.location_of(args) is not None
    worker.finish(task)
    worker.say(m.Unpin([args]))
    worker.release(args)
    assert not world.knows(args)


def test_letting_go_of_an_object_that_was_pinned_for_a_task_meanwhile_does_not_count(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(1)
    worker = world.start_worker_for(driver)
    worker.hold(value)
    task = driver.submit(needs=[value])
    worker.release(value)  # sent before the task arrived
    driver.release(value)
    worker.finish(task)
    assert world.knows(value), "its memory would be written to while the worker maps it"
    worker.say(m.Unpin([value]))
    worker.release(value)
    assert not world.knows(value)


def test_a_process_that_dies_unpins_what_it_mapped(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(3)
    other.hold(value)
    other.pin(value)
    assert driver.allocate(2) is None
    assert world.commanded(m.Spill) == []
    other.leave()
    assert spill(world) == [value]
    assert driver.answer(2) is not None


def test_unpinning_what_was_not_pinned_is_harmless(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(3)
    other.hold(value)
    other.pin(value)
    driver.say(m.Unpin([value]))
    driver.allocate(2)
    assert world.commanded(m.Spill) == []


def test_an_object_that_is_not_shared_cannot_be_mapped(world: World) -> None:
    driver = world.driver()
    located = driver.pin(driver.put())
    assert located is not None
    assert located.error


def test_an_object_that_its_maker_has_yet_to_tell_of_can_be_mapped(world: World) -> None:
    maker, reader = world.driver(), world.driver()
    granted = maker.allocate(1)
    assert granted is not None
    value = result(maker.ids.task())
    assert reader.pin(value) is None
    assert [asked.id for asked in maker.told(m.Inquire)] == [value]
    maker.say(m.Register(value, SHARED, segment=granted.segment, size=PAGE))
    located = reader.location_of(value)
    assert located is not None
    assert located.segment == granted.segment
    maker.release(value)
    assert value in world.machine.directory.objects
    reader.say(m.Unpin([value]))
    reader.release(value)
    assert world.machine.directory.objects == {}


def test_an_object_that_nobody_knows_cannot_be_mapped(world: World) -> None:
    maker, reader = world.driver(), world.driver()
    value = result(maker.ids.task())
    assert reader.pin(value) is None
    maker.say(m.Inquire(value))
    located = reader.location_of(value)
    assert located is not None
    assert located.error
    assert world.machine.directory.objects == {}


# ---------------------------------------------------------------- spilling


def test_the_least_recently_used_object_makes_way(world: World) -> None:
    driver = world.driver()
    old, used, new = (driver.put_shared(1) for _ in range(3))
    driver.pin(old)
    driver.say(m.Unpin([old]))
    assert driver.allocate(2) is None
    assert spill(world) == [used]
    assert driver.answer(4) is not None
    assert new != old


def test_as_many_objects_are_spilled_as_are_needed(world: World) -> None:
    driver = world.driver()
    values = [driver.put_shared(1) for _ in range(4)]
    driver.allocate(3)
    assert spill(world) == values[:3]
    answer = driver.answer(5)
    assert answer is not None
    assert not is_on_disk(answer.segment)


def test_a_pinned_object_stays_in_memory(world: World) -> None:
    driver = world.driver()
    pinned, other = driver.put_shared(2), driver.put_shared(2)
    driver.pin(pinned)
    driver.allocate(2)
    assert spill(world) == [other]


def test_a_copy_on_disk_is_made_once(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(value)
    assert restore(world) == [value]
    driver.say(m.Unpin([value]))
    assert driver.allocate(4) is not None
    assert world.commanded(m.Spill) == []
    assert len(world.commanded(m.DeleteSpilled)) == 0


def test_a_spilled_object_is_deleted_from_disk_with_its_last_reference(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.release(value)
    assert [command.id for command in world.commanded(m.DeleteSpilled)] == [value]


def test_an_object_that_is_wanted_while_it_is_spilled_stays(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(3)
    driver.allocate(2)
    assert driver.pin(value) is None
    spill(world)
    located = driver.location_of(value)
    assert located is not None
    assert not located.error
    assert [command.id for command in world.commanded(m.DeleteSpilled)] == [value]
    assert driver.answer(2) is None


def test_an_object_freed_while_it_is_spilled_leaves_nothing(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(3)
    driver.allocate(2)
    driver.release(value)
    spill(world)
    assert [command.id for command in world.commanded(m.DeleteSpilled)] == [value]
    assert world.machine.store.used == 2 * PAGE


def test_an_object_spoken_of_again_while_it_is_spilled_after_its_end_is_another(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(3)
    driver.allocate(2)
    driver.release(value)
    other.hold(value)
    spill(world)
    assert world.machine.store.used == 2 * PAGE


def test_the_value_of_an_object_freed_on_purpose_while_it_is_spilled_is_gone(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(3)
    driver.allocate(2)
    driver.say(m.Free([value]))
    spill(world)
    assert [command.id for command in world.commanded(m.DeleteSpilled)] == [value]
    assert world.machine.store.used == 2 * PAGE
    located = driver.pin(value)
    assert located is not None
    assert isinstance(load_error(located.error), ObjectFreedError)


def test_a_result_is_spilled_when_somebody_already_waits_for_room(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    granted = worker.allocate(4)
    assert granted is not None
    assert driver.allocate(2) is None
    worker.finish_with(task, m.Result(SHARED, segment=granted.segment, size=4 * PAGE))
    assert spill(world) == [result(task)]
    assert driver.answer(1) is not None


def test_requests_are_served_in_order(world: World) -> None:
    first, second = world.driver(), world.driver()
    value = first.put_shared(3)
    assert first.allocate(3) is None
    assert second.allocate(1) is None, "the room that is being made is for the first"
    assert spill(world) == [value]
    assert first.answer(2) is not None
    assert second.answer(1) is not None


def test_room_is_made_for_all_who_wait(world: World) -> None:
    driver = world.driver()
    values = [spilled_object(world, driver, 2) for _ in range(2)]
    for value in values:
        driver.pin(value)
    restore(world)
    assert [driver.allocate(2), driver.allocate(2)] == [None, None]
    driver.say(m.Unpin(values))
    answers = driver.told(m.Allocated)
    assert not any(is_on_disk(answer.segment) for answer in answers), "copies of both are on disk already"
    assert len(answers) == 2


# ---------------------------------------------------------------- restoring


def test_a_spilled_object_is_brought_back_for_a_reader(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = spilled_object(world, driver)
    other.hold(value)
    assert other.pin(value) is None
    assert driver.pin(value) is None
    assert restore(world) == [value], "once for all readers"
    for process in (driver, other):
        located = process.location_of(value)
        assert located is not None
        assert not located.error


def test_a_spilled_argument_is_brought_back_for_its_task(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    task = driver.submit(needs=[value])
    worker = world.start_worker()
    assert worker.tasks == [task]
    assert restore(world) == [value]
    located = worker.location_of(value)
    assert located is not None
    assert not located.error


def test_room_is_made_for_what_comes_back(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    other = driver.put_shared(4)
    assert driver.pin(value) is None
    assert spill(world) == [other]
    assert restore(world) == [value]


def test_an_object_that_cannot_be_read_back_is_an_error(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(value)
    restore(world, "input/output error")
    located = driver.location_of(value)
    assert located is not None
    assert "input/output error" in str(load_error(located.error))
    assert world.machine.store.used == world.machine.store._spare_bytes


def test_who_waits_is_served_when_a_restore_fails(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(value)
    assert driver.allocate(4) is None
    restore(world, "input/output error")
    assert [x.size for x in driver.told(m.Allocated) if not is_on_disk(x.segment)] == [4 * PAGE]


def test_who_waits_is_served_when_what_came_back_is_not_wanted_any_more(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = spilled_object(world, driver)
    other.hold(value)
    other.pin(value)
    driver.release(value)
    assert driver.allocate(4) is None
    other.leave()
    restore(world)
    assert [x.size for x in driver.told(m.Allocated) if not is_on_disk(x.segment)] == [4 * PAGE]


def test_an_object_freed_on_purpose_while_it_waits_to_come_back_is_not_brought(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = spilled_object(world, driver)
    driver.put_shared(4)
    other.hold(value)
    assert other.pin(value) is None
    driver.say(m.Free([value]))
    located = other.location_of(value)
    assert located is not None
    assert isinstance(load_error(located.error), ObjectFreedError)
    spill(world)
    assert world.commanded(m.Restore) == []


def test_an_object_freed_on_purpose_while_it_comes_back_takes_no_room(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(value)
    driver.say(m.Free([value]))
    restore(world)
    assert world.machine.store.used == world.machine.store._spare_bytes


def test_an_object_freed_on_purpose_while_it_is_mapped_on_disk_and_comes_back_takes_no_room(
    world: World,
) -> None:
    driver, other = world.driver(), world.driver()
    value = spilled_object(world, driver)
    driver.pin(value)
    restore(world, "no space left", no_room=True)  # the driver maps the copy on disk
    other.hold(value)
    other.pin(value)
    driver.say(m.Free([value]))
    located = other.location_of(value)
    assert located is not None
    assert isinstance(load_error(located.error), ObjectFreedError)
    restore(world)
    driver.say(m.Unpin([value]))
    driver.release(value)
    other.release(value)
    assert not world.machine.store._resident
    assert world.machine.store.used == world.machine.store._spare_bytes


def test_an_object_freed_on_purpose_stays_for_who_maps_it(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(1)
    other.hold(value)
    other.pin(value)
    driver.say(m.Free([value]))
    again = driver.allocate(1)
    assert again is not None
    assert not again.reused, "its memory must not be written to while it is mapped"
    other.say(m.Unpin([value]))
    assert world.machine.store._spare_bytes == PAGE


# ---------------------------------------------------------------- overflow


def test_a_writer_goes_to_disk_when_everything_stays_mapped(world: World) -> None:
    driver = world.driver()
    driver.pin(driver.put_shared(4))
    assert driver.allocate(1) is None
    assert world.machine.next_tick() == TIDY_INTERVAL_S
    world.pass_time(OVERFLOW_TIMEOUT_S / 2)
    assert driver.answer(2) is None
    world.pass_time(OVERFLOW_TIMEOUT_S)
    answer = driver.answer(2)
    assert answer is not None
    assert is_on_disk(answer.segment)
    assert "The object store is full" in answer.reason
    assert "mapped by the driver (pid 1)" in answer.reason


def test_the_next_writer_does_not_wait_until_something_is_let_go_of(world: World) -> None:
    driver = world.driver()
    mapped = driver.put_shared(4)
    driver.pin(mapped)
    driver.allocate(1)
    world.pass_time(2 * OVERFLOW_TIMEOUT_S)
    at_once = driver.allocate(1)
    assert at_once is not None
    assert is_on_disk(at_once.segment)
    driver.say(m.Unpin([mapped]))
    assert driver.allocate(1) is None
    assert spill(world) == [mapped]


def test_only_requests_that_do_not_fit_go_to_disk(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.pin(driver.put_shared(3))
    assert driver.allocate(3) is None
    other.allocate(1)
    world.pass_time(2 * OVERFLOW_TIMEOUT_S)
    large, small = driver.answer(2), other.answer(1)
    assert large is not None
    assert is_on_disk(large.segment)
    assert small is not None
    assert not is_on_disk(small.segment)


def test_an_object_on_disk_is_mapped_there_and_deleted_with_its_last_reference(world: World) -> None:
    driver, reader = world.driver(), world.driver()
    value = driver.put_shared(5)
    reader.hold(value)
    located = reader.pin(value)
    assert located is not None
    assert is_on_disk(located.segment)
    assert world.machine.store.disk_used == 5 * PAGE
    driver.release(value)
    reader.say(m.Unpin([value]))
    reader.release(value)
    assert [command.segment for command in world.commanded(m.DeleteSegment)] == [located.segment]
    assert world.machine.store.disk_used == 0


def test_an_object_on_disk_is_not_spilled(world: World) -> None:
    driver = world.driver()
    driver.put_shared(5)
    value = driver.put_shared(4)
    driver.allocate(4)
    assert spill(world) == [value]


def test_a_segment_on_disk_is_not_used_again(world: World) -> None:
    driver = world.driver()
    driver.release(driver.put_shared(5))
    again = driver.allocate(5)
    assert again is not None
    assert not again.reused


def test_a_segment_for_which_shared_memory_has_no_room_is_replaced_by_one_on_disk(world: World) -> None:
    driver = world.driver()
    driver.release(driver.put_shared(1))
    granted = driver.allocate(2)
    assert granted is not None
    driver.say(m.Allocate(7, 2 * PAGE, instead_of=granted.segment))
    answer = driver.answer(7)
    assert answer is not None
    assert is_on_disk(answer.segment)
    assert "other programs" in answer.reason
    assert world.machine.store.used == 0, "spare segments make room for other programs too"


def test_who_fits_is_served_when_others_go_to_disk(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.put_shared(3)
    assert driver.allocate(4) is None
    assert other.allocate(1) is None
    spill(world, "no space left on device")
    large, small = driver.answer(2), other.answer(1)
    assert large is not None
    assert is_on_disk(large.segment)
    assert small is not None
    assert not is_on_disk(small.segment)


def test_a_small_request_need_not_wait_behind_one_that_is_stuck(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.pin(driver.put_shared(3))
    assert driver.allocate(3) is None
    assert other.allocate(1) is not None


def test_a_reader_maps_a_spilled_object_on_disk_when_everything_is_mapped(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(driver.put_shared(4))
    located = driver.pin(value)
    assert located is not None
    assert located.segment == on_disk(value.hex())
    driver.release(value)
    assert world.commanded(m.DeleteSpilled) == [], "it is mapped"
    driver.say(m.Unpin([value]))
    driver.release(value)
    assert [command.id for command in world.commanded(m.DeleteSpilled)] == [value]


def test_a_reader_maps_a_spilled_object_on_disk_when_shared_memory_is_full(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(value)
    restore(world, "no space left on device", no_room=True)
    located = driver.location_of(value)
    assert located is not None
    assert located.segment == on_disk(value.hex())
    assert world.machine.store.used == 0


def test_an_object_that_is_mapped_on_disk_is_brought_back_later(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = spilled_object(world, driver)
    blocker = driver.put_shared(4)
    driver.pin(blocker)
    driver.pin(value)
    driver.say(m.Unpin([blocker]))
    driver.release(blocker)
    other.hold(value)
    assert other.pin(value) is None
    assert restore(world) == [value]


def test_an_object_freed_on_purpose_stays_on_disk_for_who_maps_it_there(world: World) -> None:
    driver = world.driver()
    value = spilled_object(world, driver)
    driver.pin(driver.put_shared(4))
    driver.pin(value)
    driver.say(m.Free([value]))
    assert world.commanded(m.DeleteSpilled) == []
    driver.say(m.Unpin([value]))
    assert [command.id for command in world.commanded(m.DeleteSpilled)] == [value]


def test_a_disk_that_does_not_take_a_spilled_object_is_named_once(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(4)
    for request in (2, 3):
        assert driver.allocate(1) is None
        spill(world, "no space left on device")
        answer = driver.answer(request)
        assert answer is not None
        assert is_on_disk(answer.segment)
        assert "no space left on device" in answer.reason
    (warning,) = driver.told(m.Output)
    assert "no space left on device" in warning.lines[0]
    assert world.commanded(m.Spill) == []
    located = driver.pin(value)
    assert located is not None
    assert not is_on_disk(located.segment)


def test_available_memory_falls_as_the_store_fills_and_rises_again(world: World) -> None:
    driver = world.driver()
    value = driver.put_shared(3)
    assert world.machine.store.available == PAGE
    driver.release(value)
    assert world.machine.store.available == 4 * PAGE, "a spare segment is no object"


def test_the_request_of_a_process_that_died_is_dropped(world: World) -> None:
    driver, other = world.driver(), world.driver()
    mapped = driver.put_shared(4)
    driver.pin(mapped)
    assert other.allocate(4) is None
    other.leave()
    assert driver.allocate(1) is None
    driver.say(m.Unpin([mapped]))
    assert spill(world) == [mapped]
    answer = driver.answer(2)
    assert answer is not None
    assert not is_on_disk(answer.segment)
