"""Profiles of histories: the submitted functions, the weights of user actions, and the rates of faults."""

from __future__ import annotations

from dataclasses import dataclass, field

from skate._engine.local.wire import messages as m

BROKEN = "broken environment"
_CPU = {"CPU": 1.0}

# Every kind of task that processes submit, by name.
TASKS: dict[str, m.TaskTemplate] = {
    spec.name: spec
    for spec in (
        m.TaskTemplate(b"f", "f", _CPU),
        m.TaskTemplate(b"retried", "retried", _CPU, max_retries=2, retry_exceptions=b"1"),
        m.TaskTemplate(b"two", "two", _CPU, num_returns=2, max_retries=1),
        m.TaskTemplate(b"zero", "zero", {}, max_retries=-1),
        m.TaskTemplate(b"half", "half", {"CPU": 0.5}, max_retries=1),
        m.TaskTemplate(b"pair", "pair", {"CPU": 2.0}),
        m.TaskTemplate(b"gpu", "gpu", {"GPU": 1.0}),
        m.TaskTemplate(b"share", "share", {"GPU": 0.5, "CPU": 1.0}),
        m.TaskTemplate(b"rare", "rare", {"rare": 1.0, "CPU": 1.0}),
        m.TaskTemplate(
            b"stream", "stream", _CPU, num_returns=m.STREAMING, max_retries=1, retry_exceptions=b"1"
        ),
        m.TaskTemplate(
            b"slow",
            "slow",
            _CPU,
            num_returns=m.STREAMING,
            max_retries=1,
            retry_exceptions=b"1",
            backpressure=2,
        ),
        m.TaskTemplate(
            b"dynamic", "dynamic", _CPU, num_returns=m.DYNAMIC, max_retries=1, retry_exceptions=b"1"
        ),
        m.TaskTemplate(b"none", "none", _CPU, num_returns=0),
        m.TaskTemplate(b"twice", "twice", _CPU, max_calls=2),
        m.TaskTemplate(b"huge", "huge", {"CPU": 100.0}),
        m.TaskTemplate(b"env", "env", _CPU, environment="environment"),
        m.TaskTemplate(b"bad", "bad", _CPU, environment=BROKEN),
    )
}
ACTORS: dict[str, m.TaskTemplate] = {
    spec.name: spec
    for spec in (
        m.TaskTemplate(b"A", "A", {"CPU": 1.0}),
        m.TaskTemplate(b"B", "B", {}),
        m.TaskTemplate(b"C", "C", {"GPU": 0.5}),
        m.TaskTemplate(b"D", "D", {}, environment=BROKEN),
    )
}
ACTIONS = {
    "submit": 30,
    "burst": 2,
    "put": 10,
    "drop": 26,
    "read": 14,
    "take_item": 8,
    "unmap": 5,
    "cancel": 4,
    "create_actor": 4,
    "call": 16,
    "kill_actor": 1,
    "find_actor": 2,
    "create_group": 1,
    "remove_group": 1,
    "free": 1,
    "ask": 2,
}


@dataclass(frozen=True)
class Profile:
    """The leanings of a story."""

    name: str
    tasks: tuple[str, ...] = tuple(TASKS)
    actors: tuple[str, ...] = ("A", "B", "B", "B", "C", "D")
    actions: dict[str, int] = field(default_factory=dict)
    deaths: int = 2  # of a thousand steps
    workers_die: int = 7  # of ten deaths; else drivers come and go
    detached: int = 20  # percent of actors and groups
    pages: int = 16  # of shared memory
    large: int = 30  # percent of values that go to shared memory
    long: int = 15  # percent of tasks that take long

    def weighted_actions(self) -> list[str]:
        """Return the names of actions, each as often as it is likely."""
        weights = {**ACTIONS, **self.actions}
        return [name for name, weight in weights.items() for _ in range(weight)]


PROFILES = (
    Profile("everything", tasks=("f", "f", "f", "retried", "retried", "two", *TASKS)),
    Profile(
        "short tasks",
        tasks=("f", "f", "retried", "two", "twice"),
        actions={"burst": 16, "create_actor": 1, "call": 2, "put": 3, "cancel": 8, "create_group": 0},
        large=10,
        long=8,
    ),
    Profile(
        "results that travel together",
        tasks=("retried", "two", "zero", "f"),
        actions={"burst": 20, "create_actor": 0, "call": 0, "put": 6, "cancel": 6, "create_group": 0},
        deaths=20,
        workers_die=9,
        large=10,
        long=3,
    ),
    Profile(
        "memory",
        tasks=("f", "zero", "zero", "two", "stream", "dynamic"),
        actions={"put": 40, "read": 40, "unmap": 16, "create_actor": 1, "create_group": 0, "free": 3},
        pages=8,
        large=80,
    ),
    Profile(
        "actors",
        tasks=("f", "zero", "zero"),
        actors=("B", "B", "B", "B", "A"),
        actions={"create_actor": 12, "call": 80, "kill_actor": 2, "find_actor": 6, "put": 16, "read": 40},
        large=20,
    ),
    Profile(
        "generators",
        tasks=("stream", "slow", "slow", "zero"),
        actions={"take_item": 40, "create_actor": 2, "create_group": 0},
        deaths=6,
    ),
    Profile("deaths", tasks=("f", "retried", "two", "zero", "half", "stream", "env"), deaths=25, pages=12),
    Profile(
        "jobs",
        tasks=("f", "two", "zero", "zero", "env", "retried"),
        actors=("B", "B", "A"),
        actions={"create_actor": 14, "call": 50, "find_actor": 10, "create_group": 3},
        deaths=30,
        workers_die=2,
        detached=60,
    ),
    Profile(
        "scarcity",
        tasks=("f", "half", "pair", "gpu", "share", "rare", "zero"),
        actions={"create_group": 6, "remove_group": 5, "create_actor": 6},
    ),
)
