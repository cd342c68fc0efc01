"""Actors found by name: namespaces, lifetimes and get_if_exists."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import skate
from skate.job_config import JobConfig
from tests.contract.support import Counter, eventually
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")


def gone(name: str, namespace: str | None = None) -> bool:
    try:
        skate.get_actor(name, namespace)
    except ValueError:
        return True
    return False


def test_get_actor_finds_an_actor_by_name() -> None:
    counter = Counter.options(name="counter").remote(3)
    assert skate.get(skate.get_actor("counter").read.remote()) == 3
    skate.kill(counter)


def test_get_actor_gives_the_same_actor() -> None:
    counter = Counter.options(name="same").remote()
    assert skate.get_actor("same") == counter
    skate.get(skate.get_actor("same").increment.remote())
    assert skate.get(counter.read.remote()) == 1


def test_get_actor_works_inside_a_task() -> None:
    counter = Counter.options(name="from_task").remote(4)

    @skate.remote
    def read() -> int:
        return skate.get(skate.get_actor("from_task").read.remote())

    assert skate.get(read.remote()) == 4
    del counter


def test_an_actor_named_in_a_task_is_found_by_the_driver() -> None:
    @skate.remote
    def create() -> Any:
        return Counter.options(name="made_in_task").remote(6)

    handle = skate.get(create.remote())
    assert skate.get(skate.get_actor("made_in_task").read.remote()) == 6
    del handle


def test_an_unknown_name_is_a_value_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="nobody"):
        skate.get_actor("nobody")


def test_a_taken_name_is_a_value_error_that_names_it() -> None:
    first = Counter.options(name="taken").remote()
    with pytest.raises(ValueError, match="taken"):
        Counter.options(name="taken").remote()
    del first


def test_a_name_is_free_again_after_kill() -> None:
    first = Counter.options(name="again").remote(1)
    skate.get(first.read.remote())
    skate.kill(first)
    eventually(lambda: gone("again"))
    second = Counter.options(name="again").remote(2)
    assert skate.get(skate.get_actor("again").read.remote()) == 2
    del second


def test_a_name_is_free_again_when_the_last_handle_goes() -> None:
    first = Counter.options(name="let_go").remote()
    skate.get(first.read.remote())
    del first
    eventually(lambda: gone("let_go"))


def test_get_if_exists_creates_the_actor_the_first_time() -> None:
    counter = Counter.options(name="maybe", get_if_exists=True).remote(1)
    assert skate.get(counter.read.remote()) == 1


def test_get_if_exists_gives_the_existing_actor() -> None:
    first = Counter.options(name="one", get_if_exists=True).remote(1)
    second = Counter.options(name="one", get_if_exists=True).remote(100)
    assert first == second
    assert skate.get(second.read.remote()) == 1


def test_get_if_exists_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        Counter.options(get_if_exists=True).remote()


def test_get_if_exists_from_many_tasks_makes_one_actor() -> None:
    @skate.remote
    def increment() -> int:
        counter = Counter.options(name="race", get_if_exists=True, lifetime="detached").remote()
        return skate.get(counter.increment.remote())

    assert sorted(skate.get([increment.remote() for _ in range(6)])) == [1, 2, 3, 4, 5, 6]
    skate.kill(skate.get_actor("race"))


def test_an_empty_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="name"):
        Counter.options(name="").remote()


def test_a_name_that_is_not_a_string_is_an_error() -> None:
    with pytest.raises(TypeError, match="name"):
        Counter.options(name=3).remote()


def test_an_actor_lives_in_the_namespace_it_asks_for() -> None:
    counter = Counter.options(name="spaced", namespace="elsewhere").remote(7)
    assert skate.get(skate.get_actor("spaced", namespace="elsewhere").read.remote()) == 7
    with pytest.raises(ValueError, match="spaced"):
        skate.get_actor("spaced")
    del counter


def test_one_name_in_two_namespaces_is_two_actors() -> None:
    a = Counter.options(name="twin", namespace="a").remote(1)
    b = Counter.options(name="twin", namespace="b").remote(2)
    found = [skate.get_actor("twin", namespace=n) for n in ("a", "b")]
    assert skate.get([handle.read.remote() for handle in found]) == [1, 2]
    del a, b


def test_a_detached_actor_outlives_its_handles() -> None:
    skate.get(Counter.options(name="kept", lifetime="detached").remote(9).read.remote())
    kept = skate.get_actor("kept")
    assert skate.get(kept.read.remote()) == 9
    skate.kill(kept)


def test_a_detached_actor_outlives_the_task_that_made_it() -> None:
    @skate.remote
    def create() -> None:
        skate.get(Counter.options(name="orphan", lifetime="detached").remote(8).read.remote())

    skate.get(create.remote())
    orphan = skate.get_actor("orphan")
    assert skate.get(orphan.read.remote()) == 8
    skate.kill(orphan)


def test_a_detached_actor_without_name_is_killed_by_handle() -> None:
    counter = Counter.options(lifetime="detached").remote(1)
    assert skate.get(counter.read.remote()) == 1
    skate.kill(counter)
    with pytest.raises(skate.exceptions.RayActorError):  # Ray lets it answer for a moment
        eventually(lambda: skate.get(counter.read.remote()) is None)


def test_an_unknown_lifetime_is_an_error() -> None:
    with pytest.raises(ValueError, match="lifetime"):
        Counter.options(lifetime="eternal").remote()


def test_list_named_actors_lists_this_namespace() -> None:
    counter = Counter.options(name="listed").remote()
    skate.get(counter.read.remote())
    assert "listed" in skate.util.list_named_actors()


def test_list_named_actors_of_all_namespaces_tells_which() -> None:
    counter = Counter.options(name="far", namespace="away").remote()
    skate.get(counter.read.remote())
    assert "far" not in skate.util.list_named_actors()
    assert {"name": "far", "namespace": "away"} in skate.util.list_named_actors(all_namespaces=True)


def test_an_actor_sees_its_own_name() -> None:
    @skate.remote
    class Named:
        def name(self) -> str | None:
            return skate.get_runtime_context().get_actor_name()

    named = Named.options(name="self_aware").remote()
    assert skate.get(named.name.remote()) == "self_aware"


def test_init_sets_the_namespace_of_the_job(fresh: Start) -> None:
    fresh(namespace="mine")
    assert skate.get_runtime_context().namespace == "mine"
    counter = Counter.options(name="local").remote(5)
    assert skate.get(skate.get_actor("local", namespace="mine").read.remote()) == 5
    del counter


def test_names_are_forgotten_at_shutdown(fresh: Start) -> None:
    fresh(namespace="mine", num_cpus=2)
    name = f"forgotten-{uuid.uuid4()}"  # on Ray, it lives as long as its cluster
    counter = Counter.options(name=name, lifetime="detached").remote()
    skate.get(counter.read.remote())
    skate.shutdown()
    fresh(namespace="mine")  # on Ray, another cluster
    with pytest.raises(ValueError, match="forgotten"):
        skate.get_actor(name)


@pytest.mark.parametrize(("default", "survives"), [("detached", True), ("non_detached", False)])
def test_actors_that_an_actor_makes_have_the_lifetime_of_the_job(
    fresh: Start, default: str, survives: bool
) -> None:
    @skate.remote
    class Parent:
        def make(self) -> Any:
            self.child = Counter.remote(7)
            skate.get(self.child.read.remote())
            return self.child

    fresh(job_config=JobConfig(default_actor_lifetime=default))
    parent = Parent.remote()
    child = skate.get(parent.make.remote())
    skate.kill(parent)
    if survives:
        with pytest.raises(skate.exceptions.RayActorError):
            skate.get(parent.make.remote())
        assert skate.get(child.read.remote()) == 7
    else:

        def is_dead() -> bool:
            try:
                skate.get(child.read.remote())
            except skate.exceptions.RayActorError:
                return True
            return False

        eventually(is_dead)
