"""For how many further replicas the machine has room."""

from __future__ import annotations

from collections.abc import Mapping

import skate
from skate.serve._config.deployment import DeploymentOptions
from skate.serve._ids import DeploymentID
from skate.util._session import engine_name

__all__ = ["most_here", "needs_of", "node_share", "room_for", "too_many_here", "why_unplaceable"]

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
