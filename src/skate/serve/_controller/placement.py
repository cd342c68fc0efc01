"""Where replicas go that need more than free resources: a placement group, of one replica or of a gang."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import skate
from skate.serve._config.options import DeploymentOptions
from skate.serve._controller.persistence import Recall
from skate.serve._controller.records import ReplicaRecord
from skate.serve._runtime.ids import GANG_PREFIX, DeploymentID, ReplicaID, new_id
from skate.serve.gang import GangContext
from skate.util._session import engine_name
from skate.util.placement_group import get_placement_group, placement_group, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = [
    "Place",
    "Seat",
    "gang_seats",
    "most_here",
    "needs_of",
    "new_gang",
    "node_share",
    "own_seat",
    "room_for",
    "seats_again",
    "too_many_here",
    "why_unplaceable",
]


class Place:
    """A placement group that is reserved when the first replica wants it, and removed after the last. On one loop.

    Args:
        name: Its name, by which another controller finds it.
        bundles: What it reserves; nothing if they are all empty.
        strategy: How bundles lie on nodes.
        selectors: For each bundle, the labels of the nodes that may hold it.
        seats: How many replicas share it.
    """

    def __init__(
        self,
        name: str,
        bundles: list[dict[str, float]],
        strategy: str,
        selectors: list[dict[str, str]] | None = None,
        seats: int = 1,
    ) -> None:
        self.name = name
        self._bundles = bundles
        self._strategy = strategy
        self._selectors = selectors
        self._seats = seats
        self._left: set[int] = set()
        self._reserving: asyncio.Future[Any] | None = None
        self._removing: asyncio.Task[None] | None = None

    async def reserved(self) -> Any:
        """Return the placement group, once its resources are reserved; None if there is nothing to reserve."""
        if not any(self._bundles):
            return None
        if self._reserving is None:
            self._reserving = asyncio.get_running_loop().run_in_executor(None, self._reserve)
        # One replica that gives up must not take the group from the others.
        group = await asyncio.shield(self._reserving)
        await group.ready()
        return group

    async def leave(self, seat: int) -> None:
        """Take note that a replica is gone, by its first bundle. May be called again for the same one."""
        self._left.add(seat)
        if len(self._left) < self._seats or not any(self._bundles):
            return
        if self._removing is None:
            self._removing = asyncio.ensure_future(self._remove())
        await asyncio.shield(self._removing)

    async def _remove(self) -> None:
        loop = asyncio.get_running_loop()
        if self._reserving is None:  # by another controller, or not at all
            group = await loop.run_in_executor(None, self._found)
        else:
            await asyncio.wait([self._reserving])
            group = None if self._reserving.exception() else self._reserving.result()
        if group is not None:
            await loop.run_in_executor(None, remove_placement_group, group)

    def _reserve(self) -> Any:
        return self._found() or placement_group(
            self._bundles,
            self._strategy,
            self.name,
            lifetime="detached",
            bundle_label_selector=self._selectors,
        )

    def _found(self) -> Any:
        try:
            return get_placement_group(self.name)
        except ValueError:
            return None


@dataclass(frozen=True)
class Seat:
    """A replica's part of a place: its bundles from `first` on."""

    place: Place
    first: int = 0
    gang: GangContext | None = None

    async def strategy(self) -> PlacementGroupSchedulingStrategy | None:
        """Return where the replica's actor goes, once there is room; None: anywhere, since it needs nothing."""
        group = await self.place.reserved()
        if group is None:
            return None
        return PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=self.first, placement_group_capture_child_tasks=True
        )

    async def leave(self) -> None:
        """Take note that the replica is gone."""
        await self.place.leave(self.first)


def own_seat(id: ReplicaID, options: DeploymentOptions) -> Seat | None:
    """Return the placement group that a replica has for itself, where it wants one."""
    bundles = options.placement_group_bundles
    if bundles is None:
        return None
    selectors = options.placement_group_bundle_label_selector
    return Seat(Place(id.actor_name, bundles, options.placement_group_strategy or "PACK", selectors))


def new_gang(id: DeploymentID, members: Sequence[str]) -> list[GangContext]:
    """Return a new gang as each of its replicas sees it, by the unique parts of their ids."""
    gang = new_id()
    name = f"{GANG_PREFIX}{id.app_name}_{id.name}_{gang}"
    return [GangContext(gang, rank, len(members), list(members), name) for rank in range(len(members))]


def gang_seats(options: DeploymentOptions, gang: Sequence[GangContext]) -> list[Seat]:
    """Return the seats of replicas that are placed together, or not at all.

    Args:
        options: Of their deployment.
        gang: The gang as those of its replicas see it that there are.
    """
    config = options.gang_scheduling_config
    assert config is not None, "there are gangs where there is a configuration of them"
    each = options.placement_group_bundles or [needs_of(options)]
    selectors = options.placement_group_bundle_label_selector
    size = gang[0].world_size
    place = Place(
        gang[0].pg_name,
        [dict(bundle) for _ in range(size) for bundle in each],
        config.gang_placement_strategy.value,
        None if selectors is None else [dict(selector) for _ in range(size) for selector in selectors],
        seats=len(gang),
    )
    return [Seat(place, member.rank * len(each), member) for member in gang]


def seats_again(id: DeploymentID, records: Iterable[ReplicaRecord], recall: Recall) -> dict[str, Seat | None]:
    """Return the seats, by replicas, that another controller gave to those that it had."""
    seats: dict[str, Seat | None] = {}
    gangs: dict[str, list[ReplicaRecord]] = {}
    for record in records:
        if record.gang is None:
            seats[record.id] = own_seat(ReplicaID(record.id, id), recall(record.spec).options)
        else:
            gangs.setdefault(record.gang.gang_id, []).append(record)
    for members in gangs.values():
        contexts = [record.gang for record in members if record.gang is not None]
        options = recall(members[0].spec).options
        seats |= zip((record.id for record in members), gang_seats(options, contexts), strict=True)
    return seats


_NAMED = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
_PLENTY = 1_000
_ON_EACH_NODE = "node:__internal_implicit_resource_"  # of such a resource every node of Ray has 1


def needs_of(options: DeploymentOptions) -> dict[str, float]:
    """Return the resources that one replica takes."""
    needs: dict[str, float] = {}
    bundles = options.placement_group_bundles
    if bundles is not None:
        for bundle in bundles:
            for name, amount in bundle.items():
                needs[name] = needs.get(name, 0.0) + amount
        return needs
    given = options.ray_actor_options
    needs["CPU"] = 1.0
    for option, name in _NAMED.items():
        if given.get(option) is not None:
            needs[name] = float(given[option])
    needs.update(given.get("resources") or {})
    return {name: amount for name, amount in needs.items() if amount > 0}


def room_for(needs: Mapping[str, float]) -> int:
    """Return how many times these resources are free now."""
    if not needs:
        return _PLENTY
    free = skate.available_resources()
    return max(0, int(min(free.get(name, 0.0) // amount for name, amount in needs.items())))


def why_unplaceable(options: DeploymentOptions) -> str:
    """Return why no replica can ever be placed, or nothing: machines may be added to Ray's clusters only."""
    if engine_name() == "ray":
        return ""
    needs, total = needs_of(options), skate.cluster_resources()
    lacking = {name: amount for name, amount in needs.items() if amount > total.get(name, 0.0)}
    if not lacking:
        return ""
    there = {name: total.get(name, 0.0) for name in lacking}
    return (
        f"No replica can be placed: each needs {needs}, and this machine has {there}. Ask for less with "
        "ray_actor_options or placement_group_bundles."
    )


def most_here(options: DeploymentOptions) -> int | None:
    """Return how many replicas there may be if this machine is the only one; None: any number, or other machines."""
    return None if engine_name() == "ray" else options.max_replicas_per_node


def too_many_here(options: DeploymentOptions, target: int) -> str:
    """Return what there is to say if more replicas are wanted than this machine may hold, or nothing."""
    most = most_here(options)
    if most is None or target <= most:
        return ""
    return (
        f"{target - most} of {target} replicas wait for another machine, and this is the only one: "
        f"max_replicas_per_node is {most}. Raise it, or lower num_replicas."
    )


def node_share(id: DeploymentID, options: DeploymentOptions) -> dict[str, float]:
    """Return the part of a node that a replica takes from others of its deployment, where there are several nodes."""
    if options.max_replicas_per_node is None or engine_name() != "ray":
        return {}
    return {f"{_ON_EACH_NODE}{id.app_name}:{id.name}": 1.0 / options.max_replicas_per_node}
