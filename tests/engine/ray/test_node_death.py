"""A node of the cluster is killed in the middle of a job, and the job continues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skate
from skate.exceptions import ObjectLostError, RayActorError
from tests.contract.support import Counter, Signal, eventually
from tests.plugins.ray_clusters import cluster

LARGE = 1 << 20  # numbers: far above what travels inside a message, so that they stay where they were made

# Two nodes may die; what has to survive runs on the head.
NEAR = {"near": 0.001}
FAR = {"far": 0.001}
FAR_NODE = {"num_cpus": 1, "resources": {"far": 1}}

# A node counts as dead after three seconds of silence instead of half a minute.
QUICK = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Any]:
    head = {"num_cpus": 2, "resources": {"near": 1}, "_system_config": QUICK}
    with cluster([head, FAR_NODE, FAR_NODE]) as running:
        yield running


@pytest.fixture
def nodes(three_nodes: Any) -> Iterator[Any]:
    """A session with three nodes; the place of one that dies is filled."""
    skate.init(three_nodes.address, engine="ray", preflight="off")
    yield three_nodes
    skate.shutdown()
    three_nodes.add_node(**FAR_NODE)
    three_nodes.wait_for_nodes()


@skate.remote(num_cpus=0, resources=FAR, max_restarts=1, max_task_retries=-1)
class Far:
    """Lives on a node that may die."""

    def node(self) -> str:
        return skate.get_runtime_context().get_node_id()

    def keep(self) -> list[Any]:
        self.kept = skate.put(np.ones(LARGE))
        return [self.kept]


def kill(nodes: Any, node_id: str) -> None:
    """End a node without warning, as a power cut does."""
    (victim,) = (node for node in nodes.list_all_nodes() if node.node_id == node_id)
    nodes.remove_node(victim, allow_graceful=False)
    eventually(lambda: sum(row["Alive"] for row in skate.nodes()) == 2)


def test_tasks_on_a_node_that_dies_run_again_elsewhere(nodes: Any) -> None:
    started = Signal.options(resources=NEAR).remote()
    homes = Counter.options(resources=NEAR).remote()

    @skate.remote(max_retries=3, resources=FAR)
    def work(number: int) -> tuple[int, str]:
        home = skate.get_runtime_context().get_node_id()
        if number == 0 and skate.get(homes.increment.remote()) == 1:
            skate.get(started.wait.remote(home))
        return number, home

    blocked = work.remote(0)
    rest = [work.remote(number) for number in range(1, 20)]
    skate.get(started.wait_for_waiters.remote(1))
    (victim,) = skate.get(started.waiting.remote())
    kill(nodes, victim)
    number, home = skate.get(blocked)
    assert number == 0
    assert home != victim
    assert [number for number, _ in skate.get(rest)] == list(range(1, 20))


def test_an_actor_on_a_node_that_dies_is_restarted_elsewhere(nodes: Any) -> None:
    actor = Far.remote()
    victim = skate.get(actor.node.remote())
    kill(nodes, victim)
    assert skate.get(actor.node.remote()) != victim


def test_an_actor_without_restarts_dies_with_its_node(nodes: Any) -> None:
    actor = Far.options(max_restarts=0, max_task_retries=0).remote()
    kill(nodes, skate.get(actor.node.remote()))
    with pytest.raises(RayActorError):
        skate.get(actor.node.remote())


def test_a_result_that_was_on_a_node_that_died_is_made_again(nodes: Any) -> None:
    made_on = Counter.options(resources=NEAR).remote()

    @skate.remote(max_retries=2, resources=FAR, num_returns=2)
    def make() -> tuple[Any, str]:
        skate.get(made_on.increment.remote())
        return np.ones(LARGE), skate.get_runtime_context().get_node_id()

    array, home = make.remote()
    skate.wait([array], fetch_local=False)
    kill(nodes, skate.get(home))
    assert skate.get(array).sum() == LARGE
    assert skate.get(made_on.read.remote()) == 2


def test_a_value_that_was_put_on_a_node_that_died_is_lost_with_an_error(nodes: Any) -> None:
    actor = Far.options(max_restarts=0, max_task_retries=0).remote()
    (kept,) = skate.get(actor.keep.remote())
    kill(nodes, skate.get(actor.node.remote()))
    with pytest.raises(ObjectLostError):
        skate.get(kept, timeout=60)
