"""Mistakes in calls of the core: tasks, actors, objects, placement groups and small libraries that use them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import skate
from skate._base.options import ActorOptions, MethodOptions, TaskOptions
from skate.util import ActorPool
from skate.util.placement_group import placement_group
from skate.util.queue import Queue
from skate.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from tests.misuse.support import Mistake, mistakes


@skate.remote
def add(a: int, b: int = 0) -> int:
    return a + b


@skate.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, by: int = 1) -> int:
        self.count += by
        return self.count


def plain_function() -> None: ...


class PlainClass:
    pass


def reference() -> Any:
    return add.remote(1)


def counter() -> Any:
    return Counter.options(name="counter", get_if_exists=True, lifetime="detached").remote()


def in_a_session() -> Iterator[Mistake]:
    """Yield mistakes that are made in a session."""
    yield from mistakes(
        "get",
        skate.get,
        correct=lambda: {"object_refs": reference()},
        wrong={"object_refs": [3, "ref", [3], None]},
    )
    yield from mistakes(
        "wait",
        skate.wait,
        correct=lambda: {"ray_waitables": [reference()]},
        wrong={"ray_waitables": ["ref", [3]], "num_returns": [2, 0]},
    )
    yield from mistakes("cancel", skate.cancel, wrong={"ray_waitable": [3, "ref", None]})
    yield from mistakes("kill", skate.kill, wrong={"actor": [3, "name", None]})
    yield from mistakes(
        "get_actor", skate.get_actor, correct=lambda: {"name": "absent"}, wrong={"name": ["", "absent"]}
    )
    yield from mistakes("timeline", skate.timeline)
    yield from calls()
    for kind, plain in (("function", plain_function), ("class", PlainClass)):
        yield from mistakes(
            f"remote(…)({kind})",
            {
                "num_cpus": "float",
                "runtime_env": "dict",
                "num_returns" if kind == "function" else "max_restarts": "int",
            },
            lambda: skate.remote,
            finish=lambda decorate, plain=plain: decorate(plain),  # type: ignore[misc]
            options="num_cpu",
        )
    yield Mistake("remote", "3", lambda: skate.remote(3), ("3", "function"))
    yield from mistakes(
        "add.options", annotations_of_options(TaskOptions), lambda: add.options, options="num_cpu"
    )
    yield from mistakes(
        "Counter.options",
        annotations_of_options(ActorOptions),
        lambda: Counter.options,
        options="max_restart",
    )
    yield from mistakes(
        "counter.add.options",
        annotations_of_options(MethodOptions),
        lambda: counter().add.options,
        options="num_return",
    )
    yield from mistakes(
        "placement_group",
        placement_group,
        correct=lambda: {"bundles": [{"CPU": 1}]},
        wrong={"bundles": [[], [{}], [3], [{"CPU": -1}], [{"CPU": "one"}]], "strategy": ["TIGHT"]},
    )
    yield from mistakes(
        "NodeAffinitySchedulingStrategy", NodeAffinitySchedulingStrategy, correct=lambda: {"soft": True}
    )
    yield from mistakes(
        "PlacementGroupSchedulingStrategy",
        PlacementGroupSchedulingStrategy,
        correct=lambda: {"placement_group": None},
        wrong={"placement_group": [3]},
    )
    yield from mistakes("Queue", Queue, valid={"maxsize": [-7]})
    yield from mistakes("ActorPool", ActorPool, wrong={"actors": [3, [3]]})


def annotations_of_options(options: Any) -> dict[str, str]:
    """Return the types of options as annotations."""
    return {
        name: " | ".join(
            [kind.__name__.replace("NoneType", "None") for kind in rule.types] + list(rule.classes)
        )
        for name, rule in options.RULES.items()
        if not name.startswith("_")
    }


def calls() -> Iterator[Mistake]:
    """Yield calls of tasks and actors with arguments that do not fit."""
    lock = threading.Lock()
    yield Mistake("add", "a call without remote", lambda: add(1), ("add.remote",))
    yield Mistake("add.remote", "no argument", lambda: add.remote(), ("'a'",))
    yield Mistake("add.remote", "too many arguments", lambda: add.remote(1, 2, 3), ("too many",))
    yield Mistake("add.remote", "c=1", lambda: add.remote(1, c=1), ("'c'",))
    yield Mistake("add.remote", "a lock", lambda: add.remote(lock), ("lock",))
    yield Mistake("Counter", "a call without remote", lambda: Counter(), ("Counter.remote",))
    yield Mistake("Counter.remote", "wrong=1", lambda: Counter.remote(wrong=1), ("wrong",))
    yield Mistake("Counter.remote", "a lock", lambda: Counter.remote(lock), ("lock",))
    yield Mistake("counter.add", "a call without remote", lambda: counter().add(1), ("add.remote",))
    yield Mistake(
        "counter.add.remote", "too many arguments", lambda: counter().add.remote(1, 2), ("too many",)
    )
    yield Mistake("counter.ad", "a misspelt method", lambda: counter().ad.remote(1), ("ad",))
    yield Mistake("put", "a lock", lambda: skate.put(lock), ("lock",))
    yield Mistake("put", "a reference", lambda: skate.put(reference()), ("ObjectRef",))
    yield Mistake("get", "timeot=1", lambda: skate.get(reference(), timeot=1), ("timeot",))  # type: ignore[call-arg]


def without_a_session() -> Iterator[Mistake]:
    """Yield mistakes that are made before a session starts."""
    yield from mistakes(
        "init",
        skate.init,
        wrong={
            "engine": ["remote"],
            "address": ["nowhere", "http://127.0.0.1:1", "ray://"],
            "num_cpus": [float("inf")],
            "resources": [{"CPU": 2}, {"a": -1}, {"a": "one"}],
            "labels": [{"a": 1}],
            "preflight": ["never"],
            "logging_level": ["loud"],
            "runtime_env": [{"pips": []}, {"working_dir": "/nowhere"}, {"env_vars": {"A": 1}}],
            "preload": ["torch", [3]],
        },
        valid={"logging_level": [-7]},
        options="num_cpu",
    )
    yield Mistake("get", "a reference of no session", lambda: skate.get(skate.ObjectRef.nil()), ("session",))
