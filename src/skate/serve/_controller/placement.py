"""Placement of replicas: placement groups of single replicas and of gangs, and the resources that replicas need."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import skate
from skate.serve._config import defaults
from skate.serve._config.options import DeploymentOptions
from skate.serve._controller.persistence import LoadObject
from skate.serve._controller.records import ReplicaRecord
from skate.serve._runtime.ids import GANG_PREFIX, DeploymentID, ReplicaID, new_id
from skate.serve.gang import GangContext
from skate.util._session import engine_name
from skate.util.placement_group import get_placement_group, placement_group, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = [
    "BundleLease",
    "Placement",
    "count_fitting",
    "create_gang",
    "explain_excess_replicas",
    "explain_unplaceable",
    "lease_gang_bundles",
    "lease_own_group",
    "max_local_replicas",
    "per_node_resource",
    "recover_leases",
    "required_resources",
]

_RESOURCE_OPTIONS = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
_UNLIMITED = 1_000
# Every node of Ray has 1 of each resource with this prefix.
_IMPLICIT_NODE_RESOURCE = "node:__internal_implicit_resource_"


class Placement:
    """A placement group that the first lease reserves and the release of the last lease removes. Runs on one loop.

    Args:
        name: The name of the group, by which a restarted controller finds it.
        bundles: The resources to reserve; if all bundles are empty, there is no group.
        strategy: The placement strategy of the bundles.
        selectors: For each bundle, the labels of the nodes that may hold it.
        leases: The number of replicas that share the group.
    """

    def __init__(
        self,
        name: str,
        bundles: list[dict[str, float]],
        strategy: str,
        selectors: list[dict[str, str]] | None = None,
        leases: int = 1,
    ) -> None:
        self.name = name
        self._bundles = bundles
        self._strategy = strategy
        self._selectors = selectors
        self._lease_count = leases
        self._released: set[int] = set()
        self._reservation: asyncio.Future[Any] | None = None
        self._removal: asyncio.Task[None] | None = None

    async def reserve(self) -> Any:
        """Return the placement group once its resources are reserved, or None if it needs none."""
        if not any(self._bundles):
            return None
        if self._reservation is None:
            self._reservation = asyncio.get_running_loop().run_in_executor(None, self._reserve)
        # Shielded, because a cancelled replica must not cancel the reservation of the others.
        group = await asyncio.shield(self._reservation)
        await group.ready()
        return group

    async def release(self, bundle_index: int) -> None:
        """Release the lease that starts at a bundle, and remove the group after the last lease. Idempotent."""
        self._released.add(bundle_index)
        if len(self._released) < self._lease_count or not any(self._bundles):
            return
        if self._removal is None:
            self._removal = asyncio.ensure_future(self._remove())
        await asyncio.shield(self._removal)

    async def _remove(self) -> None:
        loop = asyncio.get_running_loop()
        if self._reservation is None:  # reserved by a previous controller, or never
            group = await loop.run_in_executor(None, self._find_group)
        else:
            await asyncio.wait([self._reservation])
            group = None if self._reservation.exception() else self._reservation.result()
        if group is not None:
            await loop.run_in_executor(None, remove_placement_group, group)

    def _reserve(self) -> Any:
        return self._find_group() or placement_group(
            self._bundles,
            self._strategy,
            self.name,
            lifetime="detached",
            bundle_label_selector=self._selectors,
        )

    def _find_group(self) -> Any:
        try:
            return get_placement_group(self.name)
        except ValueError:
            return None


@dataclass(frozen=True)
class BundleLease:
    """A replica's share of a placement group: its bundles from `bundle_index` on."""

    placement: Placement
    bundle_index: int = 0
    gang: GangContext | None = None

    async def scheduling_strategy(self) -> PlacementGroupSchedulingStrategy | None:
        """Return the strategy that places the replica's actor, or None if it needs no resources."""
        group = await self.placement.reserve()
        if group is None:
            return None
        return PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=self.bundle_index, placement_group_capture_child_tasks=True
        )

    async def release(self) -> None:
        """Release the bundles of a stopped replica."""
        await self.placement.release(self.bundle_index)


def lease_own_group(id: ReplicaID, options: DeploymentOptions) -> BundleLease | None:
    """Return the lease of a placement group for one replica, or None if its options define no group."""
    bundles = options.placement_group_bundles
    if bundles is None:
        return None
    selectors = options.placement_group_bundle_label_selector
    return BundleLease(
        Placement(id.actor_name, bundles, options.placement_group_strategy or "PACK", selectors)
    )


def create_gang(id: DeploymentID, members: Sequence[str]) -> list[GangContext]:
    """Return the context of each member of a new gang, given the unique parts of their replica ids."""
    gang = new_id()
    name = f"{GANG_PREFIX}{id.app_name}_{id.name}_{gang}"
    return [GangContext(gang, rank, len(members), list(members), name) for rank in range(len(members))]


def lease_gang_bundles(options: DeploymentOptions, gang: Sequence[GangContext]) -> list[BundleLease]:
    """Return the leases of a gang, whose replicas are placed together or not at all.

    Args:
        options: The options of their deployment.
        gang: The contexts of the gang's existing members.
    """
    config = options.gang_scheduling_config
    assert config is not None, "a gang requires gang_scheduling_config"
    each = options.placement_group_bundles or [required_resources(options)]
    selectors = options.placement_group_bundle_label_selector
    size = gang[0].world_size
    placement = Placement(
        gang[0].pg_name,
        [dict(bundle) for _ in range(size) for bundle in each],
        config.gang_placement_strategy.value,
        None if selectors is None else [dict(selector) for _ in range(size) for selector in selectors],
        leases=len(gang),
    )
    return [BundleLease(placement, member.rank * len(each), member) for member in gang]


def recover_leases(
    id: DeploymentID, records: Iterable[ReplicaRecord], load_object: LoadObject
) -> dict[str, BundleLease | None]:
    """Return the leases of recorded replicas by replica id."""
    leases: dict[str, BundleLease | None] = {}
    gangs: dict[str, list[ReplicaRecord]] = {}
    for record in records:
        if record.gang is None:
            leases[record.id] = lease_own_group(ReplicaID(record.id, id), load_object(record.spec).options)
        else:
            gangs.setdefault(record.gang.gang_id, []).append(record)
    for members in gangs.values():
        contexts = [record.gang for record in members if record.gang is not None]
        options = load_object(members[0].spec).options
        leases |= zip((record.id for record in members), lease_gang_bundles(options, contexts), strict=True)
    return leases


def required_resources(options: DeploymentOptions) -> dict[str, float]:
    """Return the resources that one replica requires."""
    needed: dict[str, float] = {}
    bundles = options.placement_group_bundles
    if bundles is not None:
        for bundle in bundles:
            for name, amount in bundle.items():
                needed[name] = needed.get(name, 0.0) + amount
        return needed
    given = options.ray_actor_options
    needed["CPU"] = float(defaults.REPLICA_NUM_CPUS)
    for option, name in _RESOURCE_OPTIONS.items():
        if given.get(option) is not None:
            needed[name] = float(given[option])
    needed.update(given.get("resources") or {})
    return {name: amount for name, amount in needed.items() if amount > 0}


def count_fitting(needed: Mapping[str, float]) -> int:
    """Return how many times the resources fit into those that are free now."""
    if not needed:
        return _UNLIMITED
    free = skate.available_resources()
    return max(0, int(min(free.get(name, 0.0) // amount for name, amount in needed.items())))


def explain_unplaceable(options: DeploymentOptions) -> str:
    """Return why no replica can ever be placed, or an empty string.

    Only Ray clusters can gain nodes, so the function never rules out a placement there.
    """
    if engine_name() == "ray":
        return ""
    needed, total = required_resources(options), skate.cluster_resources()
    lacking = {name: amount for name, amount in needed.items() if amount > total.get(name, 0.0)}
    if not lacking:
        return ""
    there = {name: total.get(name, 0.0) for name in lacking}
    return (
        f"No replica can be placed: each needs {needed}, and this machine has {there}. Ask for less with "
        "ray_actor_options or placement_group_bundles."
    )


def max_local_replicas(options: DeploymentOptions) -> int | None:
    """Return the limit of replicas on this machine, or None if unlimited or if there may be other machines."""
    return None if engine_name() == "ray" else options.max_replicas_per_node


def explain_excess_replicas(options: DeploymentOptions, target: int) -> str:
    """Return a message if the target exceeds the limit of replicas on this machine, or an empty string."""
    limit = max_local_replicas(options)
    if limit is None or target <= limit:
        return ""
    return (
        f"{target - limit} of {target} replicas wait for another machine, and this is the only one: "
        f"max_replicas_per_node is {limit}. Raise it, or lower num_replicas."
    )


def per_node_resource(id: DeploymentID, options: DeploymentOptions) -> dict[str, float]:
    """Return the implicit node resource that enforces `max_replicas_per_node` on a cluster."""
    if options.max_replicas_per_node is None or engine_name() != "ray":
        return {}
    return {f"{_IMPLICIT_NODE_RESOURCE}{id.app_name}:{id.name}": 1.0 / options.max_replicas_per_node}
