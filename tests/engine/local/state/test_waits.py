"""The reduction of wait-for graphs finds what is stuck: exactly the members that no order of events can resume."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from skate._engine.local.state.waits import Graph

NAMES = ("x", "y")


@dataclass(frozen=True)
class Member:
    """One member of a small system: it runs, or waits for others, or asks for resources; all may hold some."""

    kind: str  # "runs", "waits", "asks"
    on: tuple[int, ...]
    need: int
    amounts: tuple[tuple[str, int], ...]  # that it asks for, or holds


@st.composite
def systems(draw: st.DrawFn) -> tuple[list[Member], dict[str, int]]:
    count = draw(st.integers(1, 6))
    members = []
    for _ in range(count):
        kind = draw(st.sampled_from(("runs", "waits", "waits", "asks")))
        on = tuple(draw(st.sets(st.integers(0, count - 1), max_size=4))) if kind == "waits" else ()
        need = draw(st.integers(1, max(1, len(on)))) if kind == "waits" else 0
        amounts = tuple((name, draw(st.integers(0, 2))) for name in NAMES)
        members.append(Member(kind, on, need, amounts))
    return members, {name: draw(st.integers(0, 1)) for name in NAMES}


def simulate(members: list[Member], free: dict[str, int]) -> set[int]:
    """Return the members that some order of events ends, found by trying all orders.

    A member that runs may end, and gives back what it holds; one that waits ends when enough of the others have ended;
    one that asks starts when its request fits, and may end after that.
    """
    start = (frozenset[int](), frozenset[int](), tuple(free[name] for name in NAMES))
    seen = {start}
    todo = [start]
    ended_somewhere: set[int] = set()
    while todo:
        ended, started, available = todo.pop()
        ended_somewhere |= ended
        for index, member in enumerate(members):
            if index in ended:
                continue
            amounts = [dict(member.amounts)[name] for name in NAMES]
            if member.kind == "asks" and index not in started:
                if all(a <= b for a, b in zip(amounts, available, strict=True)):
                    left = tuple(b - a for a, b in zip(amounts, available, strict=True))
                    new = (ended, started | {index}, left)
                else:
                    continue
            elif member.kind == "waits" and sum(other in ended for other in member.on) < member.need:
                continue
            else:
                more = tuple(b + a for a, b in zip(amounts, available, strict=True))
                new = (ended | {index}, started, more)
            if new not in seen:
                seen.add(new)
                todo.append(new)
    return ended_somewhere


def describe(members: list[Member], free: dict[str, int]) -> Graph:
    graph = Graph()
    holders = [(dict(member.amounts), index) for index, member in enumerate(members) if member.kind != "asks"]
    for index, member in enumerate(members):
        if member.kind == "runs":
            graph.add_active(index)
        elif member.kind == "waits":
            graph.add_wait(index, member.on, member.need)
        else:
            graph.add_demand(index, dict(member.amounts), free, holders)
    return graph


@settings(max_examples=400, deadline=None)
@given(systems())
def test_what_is_stuck_is_what_no_order_of_events_ends(system: tuple[list[Member], dict[str, int]]) -> None:
    members, free = system
    assert describe(members, free).reduce() == set(range(len(members))) - simulate(members, free)


@settings(max_examples=200, deadline=None)
@given(systems())
def test_following_what_is_stuck_stays_among_what_is_stuck(
    system: tuple[list[Member], dict[str, int]],
) -> None:
    members, free = system
    graph = describe(members, free)
    for key in graph.reduce():
        way, cycle = graph.follow(key)
        assert (way + cycle)[0] == key
        assert set(way + cycle) <= graph.reduce()
        if not cycle:  # only what nobody could give ends the way
            assert not graph.reduce() & set(graph.waited_for(way[-1]))


def test_a_wait_for_all_is_stuck_with_one_that_is() -> None:
    graph = Graph()
    graph.add_active("runs")
    graph.add_wait("itself", ["itself"])
    graph.add_wait("all", ["runs", "itself"], need=2)
    graph.add_wait("one", ["runs", "itself"], need=1)
    assert graph.reduce() == {"itself", "all"}


def test_a_node_that_nobody_describes_goes_on() -> None:
    graph = Graph()
    graph.add_wait("waits", ["unknown"])
    graph.add_demand("asks", {"x": 1}, {}, [({"x": 1}, "unknown")])
    assert graph.reduce() == set()


def test_a_demand_needs_enough_of_every_resource() -> None:
    graph = Graph()
    graph.add_active("ends")
    graph.add_wait("stays", [])
    holders = [({"x": 1}, "ends"), ({"x": 1, "y": 1}, "stays")]
    graph.add_demand("one", {"x": 1}, {}, holders)
    graph.add_demand("two", {"x": 2}, {}, holders)
    graph.add_demand("two with a free one", {"x": 2}, {"x": 1}, holders)
    graph.add_demand("other", {"x": 1, "y": 1}, {}, holders)
    assert graph.reduce() == {"stays", "two", "other"}
