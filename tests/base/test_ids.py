from __future__ import annotations

import pickle

import pytest

from skate._base import ids


def test_an_id_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="needs to have length 16"):
        ids.ActorID(b"short")


def test_an_id_survives_pickling_and_hexadecimal() -> None:
    task = ids.TaskID.from_random()
    assert pickle.loads(pickle.dumps(task)) == task
    assert ids.TaskID.from_hex(task.hex()) == task


def test_ids_of_different_kinds_are_never_equal() -> None:
    assert ids.NodeID(b"x" * 28) != ids.WorkerID(b"x" * 28)


def test_an_object_id_tells_its_task_its_index_and_its_maker() -> None:
    factory = ids.IdFactory(7, b"\0\0\0\1")
    task = factory.task()
    object_id = ids.object_id(task, 3)
    assert ids.task_of(object_id) == task
    assert ids.index_of(object_id) == 3
    assert ids.process_of(object_id) == 7
    assert ids.actor_of(object_id) is None


def test_a_call_id_tells_its_actor() -> None:
    factory = ids.IdFactory(7, b"\0\0\0\1")
    actor = factory.actor()
    assert ids.actor_of(factory.call(actor)) == actor
    assert ids.TaskID(factory.call(actor)).actor_id() == ids.ActorID(actor)


def test_no_two_ids_of_a_factory_are_equal() -> None:
    factory = ids.IdFactory(1, b"\0\0\0\1")
    made = [factory.task() for _ in range(1000)] + [factory.call(factory.actor()) for _ in range(1000)]
    assert len(set(made)) == len(made)


def test_actors_of_two_sessions_never_share_an_id() -> None:
    one = ids.IdFactory(1, b"\0\0\0\1", b"aaaa").actor()
    other = ids.IdFactory(1, b"\0\0\0\1", b"bbbb").actor()
    assert one != other
