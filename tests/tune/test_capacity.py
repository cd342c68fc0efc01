"""The resources of a session: what has room on one machine, and on the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skate
from skate.tune import PlacementGroupFactory
from skate.tune._loop.capacity import ClusterCapacity, can_place

NODES = [{"CPU": 2.0}, {"CPU": 1.0}, {"CPU": 1.0}]


def cpus(*amounts: float, strategy: str = "PACK") -> PlacementGroupFactory:
    return PlacementGroupFactory([{"CPU": amount} for amount in amounts], strategy)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 4))
def test_as_many_equal_workers_fit_as_the_nodes_have_room_for(sizes: list[int], size: int) -> None:
    room = sum(node // size for node in sizes)
    nodes = [{"CPU": float(node)} for node in sizes]
    assert can_place([cpus(size)] * room, nodes)
    assert not can_place([cpus(size)] * (room + 1), nodes)


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), max_size=5),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_no_more_is_placed_than_the_nodes_have(workers: list[list[int]], sizes: list[int]) -> None:
    nodes = [{"CPU": float(size)} for size in sizes]
    if can_place([cpus(*worker) for worker in workers], nodes):
        assert sum(map(sum, workers)) <= sum(sizes)
        assert max((max(worker) for worker in workers), default=0) <= max(sizes)
    assert nodes == [{"CPU": float(size)} for size in sizes]


@pytest.mark.parametrize(
    ("workers", "fits"),
    [
        ([cpus(1, 1), cpus(1, 1)], True),
        ([cpus(1, 1, strategy="STRICT_PACK")], True),
        ([cpus(1, 1, strategy="STRICT_PACK")] * 2, False),
        ([cpus(1, 1, strategy="STRICT_SPREAD")] * 2, True),
        ([cpus(1, 1, 1, 1, strategy="STRICT_SPREAD")], False),
        ([cpus(1), cpus(1), cpus(2)], True),  # the largest is placed first
        ([PlacementGroupFactory([{"CPU": 1, "GPU": 1}])], False),
    ],
)
def test_bundles_are_placed_as_their_strategy_requires(
    workers: list[PlacementGroupFactory], fits: bool
) -> None:
    assert can_place(workers, NODES) is fits


class Cluster:
    """Nodes whose resources a test changes; the test advances the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.nodes = {str(number): dict(node) for number, node in enumerate(NODES)}
        self.dead: set[str] = set()
        self.available = 4.0
        monkeypatch.setattr(skate, "nodes", self.rows)
        monkeypatch.setattr(skate, "cluster_resources", lambda: {"CPU": 4.0})
        monkeypatch.setattr(skate, "available_resources", lambda: {"CPU": self.available})
        self.capacity = ClusterCapacity(lambda: self.now)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "Alive": name not in self.dead, "Resources": node}
            for name, node in self.nodes.items()
        ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_workers_take_room_on_nodes_and_give_it_back(cluster: Cluster) -> None:
    two = cpus(2)
    assert cluster.capacity.has_room(two)
    cluster.capacity.take(two)
    assert not cluster.capacity.has_room(two)  # the other two CPUs are on two nodes
    assert cluster.capacity.has_room(cpus(1, 1))
    cluster.capacity.give_back(two)
    assert cluster.capacity.has_room(two)


def test_what_other_programs_use_is_not_free_until_they_end(cluster: Cluster) -> None:
    cluster.capacity.take(cpus(1))
    cluster.available, cluster.now = 0.0, 2.0
    assert not cluster.capacity.has_room(cpus(1))
    cluster.available, cluster.now = 1.0, 2.5
    assert not cluster.capacity.has_room(cpus(1))  # not asked for again so soon
    cluster.now = 3.0
    assert cluster.capacity.has_room(cpus(1))


def test_nodes_that_join_are_used(cluster: Cluster) -> None:
    assert "{'CPU': 3.0} on one node, but the nodes have [" in cluster.capacity.why_impossible(cpus(3))
    assert not cluster.capacity.has_room(cpus(3))
    cluster.nodes["new"], cluster.available, cluster.now = {"CPU": 4.0}, 8.0, 2.0
    assert cluster.capacity.has_room(cpus(3))
    assert not cluster.capacity.why_impossible(cpus(3))


def test_a_trial_waits_for_a_node_that_has_died(cluster: Cluster) -> None:
    cluster.dead, cluster.available, cluster.now = {"0"}, 2.0, 2.0
    assert not cluster.capacity.has_room(cpus(2))
    assert not cluster.capacity.why_impossible(cpus(2))


def test_what_no_cluster_of_these_nodes_has_is_named(cluster: Cluster) -> None:
    why = cluster.capacity.why_impossible
    assert why(cpus(5)) == "the trial needs {'CPU': 5.0}, but the session has {'CPU': 4.0}"
    assert why(cpus(2, 1, strategy="STRICT_PACK")).startswith("the trial needs {'CPU': 3.0} on one node")
    assert why(cpus(1, 1, 1, 1, strategy="STRICT_SPREAD")) == "the trial needs 4 nodes, but the cluster has 3"
    assert not why(cpus(1, 1, 1, 1))
