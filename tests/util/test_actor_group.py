from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.util.actor_group import ActorGroup
from skate.util.annotations import RayDeprecationWarning

pytestmark = pytest.mark.filterwarnings("ignore::skate.util.annotations.RayDeprecationWarning")


@pytest.fixture(params=["inline", "local"], autouse=True)
def session(request: pytest.FixtureRequest) -> Iterator[None]:
    skate.init(num_cpus=4, engine=request.param)
    yield
    skate.shutdown()


class Worker:
    def __init__(self, name: str = "") -> None:
        self.name = name

    def get_actor_metadata(self) -> str:
        return f"about {self.name}"

    def add(self, x: int, y: int = 0) -> int:
        return x + y

    def pid(self) -> int:
        return os.getpid()


def test_a_method_is_called_on_all_actors() -> None:
    group = ActorGroup(Worker, num_actors=2, init_kwargs={"name": "me"})
    assert skate.get(group.add.remote(1, y=2)) == [3, 3]
    assert group.actor_metadata == ["about me", "about me"]
    assert len(group) == 2
    assert skate.get(group[0].actor.add.remote(4)) == 4


def test_actors_come_and_go() -> None:
    group = ActorGroup(Worker, num_actors=2)
    group.add_actors(1)
    group.remove_actors([0, 1])
    assert len(skate.get(group.pid.remote())) == 1
    group.shutdown()
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        _ = group.pid
    group.start()
    with pytest.raises(RuntimeError, match="are already running"):
        group.start()
    assert len(group) == 2
    group.shutdown(patience_s=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_actors": 0}, "num_actors must be 1 or more"),
        ({"num_cpus_per_actor": -1}, "must not be negative"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ActorGroup(Worker, **options)


def test_a_method_is_not_called_directly() -> None:
    with pytest.raises(TypeError, match=r"use add.remote\(\)"):
        ActorGroup(Worker).add(1)


def test_a_group_names_what_replaces_it() -> None:
    with pytest.warns(RayDeprecationWarning, match=r"use ray\.util\.multiprocessing"):
        ActorGroup(Worker).shutdown()
