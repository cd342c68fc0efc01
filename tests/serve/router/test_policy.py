"""The choice of a replica for a request."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from skate.serve._router.policy import choose


@dataclass
class Candidate:
    name: str
    queue_len: int = 0
    has_room: bool = True
    models: frozenset[str] = field(default_factory=frozenset)


def test_nobody_is_chosen_when_all_are_full() -> None:
    assert choose([], "", random.randrange) is None
    assert choose([Candidate("a", has_room=False)], "", random.randrange) is None
    assert choose([Candidate("a", has_room=False)] * 3, "", random.randrange) is None


def test_the_only_one_with_room_is_found() -> None:
    free = Candidate("free", queue_len=9)
    full = [Candidate(f"full{number}", has_room=False) for number in range(9)]
    for _ in range(50):
        assert choose([*full, free], "", random.randrange) is free


def test_of_two_the_less_busy_one_is_taken() -> None:
    busy, idle = Candidate("busy", queue_len=3), Candidate("idle", queue_len=1)
    for _ in range(20):
        assert choose([busy, idle], "", random.randrange) is idle


def test_equal_replicas_get_equal_shares() -> None:
    replicas = [Candidate(str(number)) for number in range(4)]
    draw = random.Random(0).randrange
    counts: Counter[str] = Counter()
    for _ in range(4000):
        chosen = choose(replicas, "", draw)
        assert chosen is not None
        counts[chosen.name] += 1
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_the_busiest_of_many_is_avoided() -> None:
    replicas = [Candidate(str(number), queue_len=number) for number in range(5)]
    for _ in range(100):
        assert choose(replicas, "", random.randrange) is not replicas[-1]


def test_a_model_goes_to_where_it_is_loaded() -> None:
    has = Candidate("has", queue_len=4, models=frozenset({"m"}))
    lacks = Candidate("lacks")
    assert choose([lacks, has], "m", random.randrange) is has
    has.has_room = False
    assert choose([lacks, has], "m", random.randrange) is lacks


def test_a_new_model_goes_to_where_the_fewest_are_loaded() -> None:
    one = Candidate("one", models=frozenset({"a"}))
    two = Candidate("two", models=frozenset({"a", "b"}))
    assert choose([two, one], "c", random.randrange) is one
