"""Objects and actors end when the last reference to them is dropped."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest

import skate
from skate._engine.abc import Table
from skate._engine.inline.engine import InlineEngine
from skate.exceptions import ActorDiedError, RayActorError
from tests.engine.inline.conftest import note

pytestmark = pytest.mark.usefixtures("by_reference")  # actors append to a list of an imported module


@skate.remote
class Noted:
    """Says when it ends."""

    def __init__(self, name: str = "noted") -> None:
        self.name = name

    def ping(self) -> str:
        return "pong"

    def keep(self, handles: list[Any]) -> None:
        self.handles = handles

    def give(self) -> Any:
        return self.handles[0]

    def __ray_shutdown__(self) -> None:
        note(f"{self.name} shut down")

    def __del__(self) -> None:
        note(f"{self.name} deleted")


def held(engine: InlineEngine) -> int:
    gc.collect()
    return len(engine.state(Table.OBJECTS))


def test_an_object_is_freed_with_its_last_reference(engine: InlineEngine) -> None:
    ref = skate.put(np.ones(100_000))
    assert held(engine) == 1
    del ref
    assert held(engine) == 0


def test_an_object_lives_in_what_refers_to_it(engine: InlineEngine) -> None:
    outer = skate.put([skate.put("inner")])
    assert held(engine) == 2
    assert skate.get(skate.get(outer)[0]) == "inner"
    del outer
    assert held(engine) == 0


def test_an_argument_lives_until_its_task_has_run(engine: InlineEngine) -> None:
    @skate.remote
    def inner(refs: list[Any]) -> str:
        return str(skate.get(refs[0]))

    ref = inner.remote([skate.put("argument")])
    assert held(engine) == 1
    assert skate.get(ref) == "argument"


def test_a_result_that_nobody_wants_is_not_kept(engine: InlineEngine) -> None:
    @skate.remote
    def make() -> list[Any]:
        return [skate.put(1), skate.put(2)]

    make.remote()
    assert held(engine) == 0


def test_a_reference_pickled_by_hand_keeps_its_object(engine: InlineEngine) -> None:
    data = pickle.dumps(skate.put("kept"))
    assert held(engine) == 1
    assert skate.get(pickle.loads(data)) == "kept"


def test_a_reference_of_another_session_says_so(engine: InlineEngine) -> None:
    ref = skate.put(1)
    skate.shutdown()
    with skate.init(engine="inline"), pytest.raises(ValueError, match="another session"):
        skate.get(ref)


def test_large_arrays_are_read_in_place(engine: InlineEngine) -> None:
    ref = skate.put(np.arange(1_000_000))
    first, second = skate.get(ref), skate.get(ref)
    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    del ref, second
    gc.collect()
    assert first.sum() == sum(range(1_000_000))


def test_an_actor_ends_with_its_last_handle_and_may_clean_up(engine: InlineEngine, log: list[Any]) -> None:
    actor = Noted.remote()
    other = skate.get(skate.put([actor]))[0]
    del actor
    assert skate.get(other.ping.remote()) == "pong"
    assert log == []
    del other
    gc.collect()
    assert log == ["noted shut down", "noted deleted"]
    assert [row["state"] for row in engine.state(Table.ACTORS)] == ["DEAD"]


def test_a_killed_actor_does_not_clean_up(engine: InlineEngine, log: list[Any]) -> None:
    actor = Noted.remote()
    skate.kill(actor)
    gc.collect()
    assert log == ["noted deleted"]


def test_an_actors_handle_to_itself_does_not_keep_it(engine: InlineEngine, log: list[Any]) -> None:
    actor = Noted.remote()
    skate.get(actor.keep.remote([actor]))
    del actor
    gc.collect()
    assert log == ["noted shut down", "noted deleted"]


def test_an_actors_handle_to_itself_keeps_it_where_it_was_given_to(engine: InlineEngine) -> None:
    actor = Noted.remote()
    skate.get(actor.keep.remote([actor]))
    handle = skate.get(actor.give.remote())
    del actor
    gc.collect()
    assert skate.get(handle.ping.remote()) == "pong"


def test_a_detached_actor_needs_no_handle(engine: InlineEngine) -> None:
    Noted.options(name="stays", lifetime="detached").remote()
    gc.collect()
    assert skate.get(skate.get_actor("stays").ping.remote()) == "pong"
    skate.kill(skate.get_actor("stays"))
    with pytest.raises(ValueError, match="stays"):
        skate.get_actor("stays")


def test_a_named_actor_goes_with_its_handles(engine: InlineEngine) -> None:
    actor = Noted.options(name="goes").remote()
    assert skate.get_actor("goes") == actor
    del actor
    gc.collect()
    with pytest.raises(ValueError, match="goes"):
        skate.get_actor("goes")


def test_a_handle_of_another_session_reaches_no_actor_of_this_one(engine: InlineEngine) -> None:
    old = Noted.remote()
    skate.shutdown()
    with skate.init(engine="inline"):
        new = Noted.remote()
        assert old._actor_id != new._actor_id
        with pytest.raises(skate.exceptions.ActorHandleNotFoundError):
            old.ping.remote()


def test_an_actor_takes_those_along_that_it_created(engine: InlineEngine) -> None:
    @skate.remote
    class Parent:
        def __init__(self) -> None:
            self.child = Noted.remote()

        def give(self) -> Any:
            return self.child

    parent = Parent.remote()
    child = skate.get(parent.give.remote())
    skate.kill(parent)
    with pytest.raises(RayActorError):
        skate.get(child.ping.remote())


def test_an_actor_may_kill_itself(engine: InlineEngine, log: list[Any]) -> None:
    @skate.remote(max_restarts=1)
    class Suicidal:
        def die(self) -> None:
            skate.kill(skate.get_runtime_context().current_actor, no_restart=False)
            note("not reached")

        def restarts(self) -> bool:
            return skate.get_runtime_context().was_current_actor_reconstructed

    actor = Suicidal.remote()
    with pytest.raises(RayActorError):
        skate.get(actor.die.remote())
    assert skate.get(actor.restarts.remote()) is True
    with pytest.raises(ActorDiedError):
        skate.get(actor.die.remote())
    assert log == []


def test_a_restart_runs_again_what_may_be_retried(engine: InlineEngine) -> None:
    @skate.remote(max_restarts=1, max_task_retries=1)
    class Sleeper:
        async def sleep(self, first: bool) -> str:
            import asyncio

            if not skate.get_runtime_context().was_current_actor_reconstructed:
                await asyncio.sleep(60)
            return "slept"

    sleeper = Sleeper.remote()
    ref = sleeper.sleep.remote(True)
    skate.kill(sleeper, no_restart=False)
    assert skate.get(ref) == "slept"


def test_an_actor_keeps_no_resources_after_its_end(engine: InlineEngine) -> None:
    actor = Noted.options(num_cpus=3).remote()
    assert skate.available_resources()["CPU"] == 1
    del actor
    gc.collect()
    assert skate.available_resources()["CPU"] == 4


def test_shutdown_inside_a_task_does_not_end_the_session(engine: InlineEngine) -> None:
    @skate.remote
    def task() -> int:
        skate.shutdown()
        return 1

    assert skate.get(task.remote()) == 1
    assert skate.is_initialized()
