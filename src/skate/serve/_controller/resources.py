"""For how many further replicas the machine has room."""

from __future__ import annotations

from collections.abc import Mapping

import skate
from skate.serve._config.deployment import DeploymentOptions

__all__ = ["needs_of", "room_for"]

_NAMED = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
_PLENTY = 1_000


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
