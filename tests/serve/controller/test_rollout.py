"""The order in which replicas start and stop, decided without processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skate.serve._controller.rollout import Decision, Phase, ReplicaView, decide


def running(version: str, *ids: str, load: int = 0) -> list[ReplicaView]:
    return [ReplicaView(id, version, Phase.RUNNING, load) for id in ids]


def starting(version: str, *ids: str) -> list[ReplicaView]:
    return [ReplicaView(id, version, Phase.STARTING) for id in ids]


def test_a_new_deployment_starts_all_replicas_at_once() -> None:
    assert decide([], target=3, version="1", room=0) == Decision(start=3)


def test_nothing_is_done_when_all_is_as_it_should_be() -> None:
    assert decide(running("1", "a", "b"), target=2, version="1", room=9) == Decision()


def test_a_replica_that_is_missing_is_started() -> None:
    assert decide(running("1", "a"), target=2, version="1", room=0) == Decision(start=1)


def test_the_least_busy_replicas_go_first_and_those_that_are_not_up_before_them() -> None:
    seen = [*running("1", "busy", load=5), *running("1", "idle"), *starting("1", "young")]
    assert decide(seen, target=2, version="1", room=9) == Decision(stop=("young",))
    assert decide(seen, target=1, version="1", room=9) == Decision(stop=("young", "idle"))


def test_an_old_replica_serves_until_a_new_one_runs() -> None:
    old = running("1", "a")
    assert decide(old, target=1, version="2", room=1) == Decision(start=1)
    assert decide([*old, *starting("2", "b")], target=1, version="2", room=0) == Decision()
    assert decide([*old, *running("2", "b")], target=1, version="2", room=0) == Decision(stop=("a",))


def test_without_room_one_of_several_goes_first() -> None:
    old = running("1", "a", "b")
    assert len(decide(old, target=2, version="2", room=0).stop) == 1
    leaving = [ReplicaView("a", "1", Phase.STOPPING), *running("1", "b")]
    assert decide(leaving, target=2, version="2", room=0) == Decision()


def test_a_single_replica_on_a_full_machine_makes_room() -> None:
    assert decide(running("1", "a"), target=1, version="2", room=0) == Decision(stop=("a",))


def test_what_is_missing_anyway_does_not_wait_for_its_turn() -> None:
    old = running("1", "a", "b")
    assert decide(old, target=6, version="2", room=9).start == 4
    assert decide(old, target=6, version="2", room=1).start == 1


def gang(
    version: str, name: str, *ids: str, phase: Phase = Phase.RUNNING, load: int = 0
) -> list[ReplicaView]:
    return [ReplicaView(id, version, phase, load, name) for id in ids]


def test_gangs_start_whole() -> None:
    assert decide([], target=6, version="1", room=0, gang_size=3) == Decision(start=6)
    assert decide(gang("1", "A", "a", "b", "c"), target=6, version="1", room=0, gang_size=3).start == 3
    old = gang("1", "A", "a", "b", "c")
    assert decide(old, target=3, version="2", room=2, gang_size=3) == Decision(stop=("a", "b", "c"))
    assert decide(old, target=3, version="2", room=3, gang_size=3) == Decision(start=3)


def test_the_gang_that_is_least_busy_goes_first() -> None:
    seen = [*gang("1", "A", "a", "b", load=2), *gang("1", "B", "c", "d", load=1)]
    assert decide(seen, target=2, version="1", room=0, gang_size=2) == Decision(stop=("c", "d"))


def test_an_old_gang_serves_until_all_of_a_new_one_runs() -> None:
    old = gang("1", "A", "a", "b")
    half = [*gang("2", "B", "c"), *gang("2", "B", "d", phase=Phase.STARTING)]
    assert decide([*old, *half], target=2, version="2", room=9, gang_size=2) == Decision()
    assert decide([*old, *gang("2", "B", "c", "d")], target=2, version="2", room=9, gang_size=2) == Decision(
        stop=("a", "b")
    )


def test_what_is_left_of_a_gang_is_stopped_and_replaced() -> None:
    seen = [*gang("1", "A", "a", phase=Phase.STOPPING), *gang("1", "A", "b")]
    assert decide(seen, target=2, version="1", room=0, gang_size=2) == Decision(start=2, stop=("b",))


def test_an_old_replica_that_never_came_up_is_stopped() -> None:
    seen = [*running("1", "a"), *starting("1", "b")]
    assert "b" in decide(seen, target=2, version="2", room=2).stop


@given(
    target=st.integers(1, 6),
    spare=st.integers(0, 4),
    batch=st.integers(1, 3),
    order=st.lists(st.integers(0, 5), max_size=40),
)
def test_an_update_arrives_and_somebody_serves_all_along(
    target: int, spare: int, batch: int, order: list[int]
) -> None:
    replicas = {f"old{number}": ReplicaView(f"old{number}", "1", Phase.RUNNING) for number in range(target)}
    capacity = target + spare
    made = 0
    turns = iter(order)
    for _ in range(200):
        room = capacity - len(replicas)
        decision = decide(list(replicas.values()), target=target, version="2", room=room, batch=batch)
        for id in decision.stop:
            replicas[id] = ReplicaView(id, replicas[id].version, Phase.STOPPING)
        for _ in range(decision.start):
            made += 1
            replicas[f"new{made}"] = ReplicaView(f"new{made}", "2", Phase.STARTING)
        serving = sum(each.phase is Phase.RUNNING for each in replicas.values())
        if spare:
            assert serving >= target, "old replicas serve until as many new ones do"
        elif target > 1:
            assert serving >= 1
        waiting = [each for each in replicas.values() if each.phase is not Phase.RUNNING]
        if not waiting:
            break
        # One of them, in any order, comes up or is gone.
        chosen = waiting[next(turns, 0) % len(waiting)]
        if chosen.phase is Phase.STOPPING:
            del replicas[chosen.id]
        else:
            replicas[chosen.id] = ReplicaView(chosen.id, chosen.version, Phase.RUNNING)
    assert [each.version for each in replicas.values()] == ["2"] * target
