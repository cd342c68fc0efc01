"""The resources that the workers of trials may use, on one machine or on the nodes of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import skate
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.util._session import engine_name

_TOLERANCE = 1e-6  # for sums of fractions
_REFRESH_S = 1.0  # between two requests for the state of a cluster

Amounts = Mapping[str, float]


class Capacity:
    """The resources of a session on one machine.

    Attributes:
        total: The resources of the session.
    """

    def __init__(self) -> None:
        self.total = skate.cluster_resources()
        self._free = skate.available_resources()

    def take(self, resources: PlacementGroupFactory) -> None:
        """Count the resources of a new worker as used."""
        self._change(resources, -1)

    def give_back(self, resources: PlacementGroupFactory) -> None:
        """Count the resources of a worker that has ended as free."""
        self._change(resources, 1)

    def _change(self, resources: PlacementGroupFactory, sign: int) -> None:
        for name, amount in resources.required_resources.items():
            self._free[name] = self._free.get(name, 0.0) + sign * amount

    def has_room(self, resources: PlacementGroupFactory) -> bool:
        """Return whether the resources of another worker are free."""
        return _fits(self._free, resources.required_resources)

    def why_impossible(self, resources: PlacementGroupFactory) -> str:
        """Return why a session as large as this one can never run a trial with these resources; "" if it can."""
        needed = resources.required_resources
        lacking = {name: needed[name] for name in needed if not _fits(self.total, {name: needed[name]})}
        if not lacking:
            return ""
        available = {name: self.total.get(name, 0.0) for name in lacking}
        return f"the trial needs {lacking}, but the session has {available}"


class ClusterCapacity(Capacity):
    """The resources of a cluster, whose nodes may join and leave.

    A worker that fits on no node would wait forever while others are idle, so resources are counted per node. The usage
    of other programs is known only for the whole cluster, and with a delay.

    Args:
        clock: A function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._workers: list[PlacementGroupFactory] = []
        self._nodes: list[Amounts] = []  # that are alive
        self._known: dict[str, Amounts] = {}  # including nodes that have died: they may be replaced
        self._used_by_others: dict[str, float] = {}
        self._refresh()

    def _refresh(self) -> None:
        self._refreshed = self._clock()
        alive = {row["NodeID"]: row["Resources"] for row in skate.nodes() if row["Alive"]}
        self._nodes = list(alive.values())
        self._known.update(alive)
        self.total = _sum(self._nodes)
        own = _sum(each.required_resources for each in self._workers)
        available = skate.available_resources()
        self._used_by_others = {
            name: max(0.0, amount - available.get(name, 0.0) - own.get(name, 0.0))
            for name, amount in self.total.items()
        }

    def take(self, resources: PlacementGroupFactory) -> None:
        """Count the resources of a new worker as used."""
        self._workers.append(resources)

    def give_back(self, resources: PlacementGroupFactory) -> None:
        """Count the resources of a worker that has ended as free."""
        self._workers.remove(resources)

    def has_room(self, resources: PlacementGroupFactory) -> bool:
        """Return whether the resources of another worker are free, on nodes that have room for its bundles."""
        if self._clock() - self._refreshed >= _REFRESH_S:
            self._refresh()
        workers = [*self._workers, resources]
        used = _sum([self._used_by_others, *(each.required_resources for each in workers)])
        return _fits(self.total, {name: used[name] for name in resources.required_resources}) and can_place(
            workers, self._nodes
        )

    def why_impossible(self, resources: PlacementGroupFactory) -> str:
        """Return why a cluster of these nodes can never run a trial with these resources; "" if it can."""
        nodes = list(self._known.values())
        if not _fits(_sum(nodes), resources.required_resources):
            return super().why_impossible(resources)
        on_one_node = (
            [resources.required_resources] if resources.strategy == "STRICT_PACK" else resources.bundles
        )
        for bundle in on_one_node:
            if not any(_fits(node, bundle) for node in nodes):
                available = [{name: node.get(name, 0.0) for name in bundle} for node in nodes]
                return f"the trial needs {bundle} on one node, but the nodes have {available}"
        if resources.strategy == "STRICT_SPREAD" and len(on_one_node) > len(nodes):
            return f"the trial needs {len(on_one_node)} nodes, but the cluster has {len(nodes)}"
        return ""


def session_capacity() -> Capacity:
    """Return the resources of the current session."""
    return ClusterCapacity() if engine_name() == "ray" else Capacity()


def can_place(workers: Iterable[PlacementGroupFactory], nodes: Sequence[Amounts]) -> bool:
    """Return whether the bundles of workers fit on the nodes of an otherwise unused cluster.

    The largest workers are placed first. Each bundle goes to the fitting node with the least free resources, or with
    the most if the bundles of a worker must be on different nodes. With workers of different sizes, this heuristic may
    miss a placement that exists.

    >>> pair = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    >>> can_place([pair, pair], [{"CPU": 2}, {"CPU": 1}, {"CPU": 1}])
    True
    >>> together = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}], "STRICT_PACK")
    >>> can_place([together, together], [{"CPU": 2}, {"CPU": 1}, {"CPU": 1}])
    False
    """
    free = [dict(node) for node in nodes]
    for worker in sorted(workers, key=_largest_bundle, reverse=True):
        bundles = [worker.required_resources] if worker.strategy == "STRICT_PACK" else worker.bundles
        taken: list[dict[str, float]] = []
        for bundle in bundles:
            if worker.strategy == "STRICT_SPREAD":
                others = [node for node in free if not any(node is each for each in taken)]
                node = max(_fitting(bundle, others), key=_amount_of(bundle), default=None)
            else:
                node = min(_fitting(bundle, free), key=_amount_of(bundle), default=None)
            if node is None:
                return False
            taken.append(node)
            for name, amount in bundle.items():
                node[name] -= amount
    return True


def _fitting(bundle: Amounts, nodes: Iterable[dict[str, float]]) -> list[dict[str, float]]:
    return [node for node in nodes if _fits(node, bundle)]


def _amount_of(bundle: Amounts) -> Callable[[Amounts], float]:
    """Return a function that sums a node's amounts of the resources of a bundle."""
    return lambda node: sum(node[name] for name in bundle)


def _largest_bundle(worker: PlacementGroupFactory) -> float:
    return max(max(bundle.values()) for bundle in worker.bundles)


def _fits(free: Amounts, needed: Amounts) -> bool:
    return all(free.get(name, 0.0) >= amount - _TOLERANCE for name, amount in needed.items())


def _sum(amounts: Iterable[Amounts]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return total
