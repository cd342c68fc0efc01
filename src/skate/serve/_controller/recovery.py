"""What is left of what another controller kept: found by its name, and ended if nothing needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import NamedTuple

import skate
import skate.util
from skate.serve._runtime.ids import (
    DEPLOYMENT_ACTOR_PREFIX,
    GANG_PREFIX,
    NAMESPACE,
    PROXY_PREFIX,
    REPLICA_PREFIX,
)
from skate.util.placement_group import get_placement_group, placement_group_table, remove_placement_group

__all__ = ["Found", "end", "look"]

logger = logging.getLogger("skate.serve")

_OURS = (REPLICA_PREFIX, PROXY_PREFIX, DEPLOYMENT_ACTOR_PREFIX)


class Found(NamedTuple):
    """The names of what there is of Serve."""

    actors: set[str]
    groups: set[str]  # the placement groups of replicas, which have the names of their actors, and of gangs

    def without(self, needed: Collection[str]) -> Found:
        """Return what belongs to nothing."""
        return Found(self.actors.difference(needed), self.groups.difference(needed))


def look() -> Found:
    """Return what there is, besides the controller."""
    named = skate.util.list_named_actors(all_namespaces=True)
    ours = (row["name"] for row in named if isinstance(row, dict) and row["namespace"] == NAMESPACE)
    groups = (row["name"] for row in placement_group_table().values() if row["state"] != "REMOVED")
    return Found(
        {name for name in ours if name.startswith(_OURS)},
        {name for name in groups if name.startswith((REPLICA_PREFIX, GANG_PREFIX))},
    )


async def end(left: Found) -> None:
    """End what belongs to nothing.

    A controller may be killed after it has had something made, and before it could write that down. Nobody has been
    told of it then, so nobody loses it.
    """
    loop = asyncio.get_running_loop()
    for name in left.actors:
        logger.warning("The actor %s belongs to no application: it is ended.", name)
        await loop.run_in_executor(None, _kill, name)
    for name in left.groups:
        await loop.run_in_executor(None, _remove, name)


def _kill(name: str) -> None:
    try:
        actor = skate.get_actor(name, NAMESPACE)
    except ValueError:
        return  # it has ended by itself
    skate.kill(actor)


def _remove(name: str) -> None:
    try:
        group = get_placement_group(name)
    except ValueError:
        return
    remove_placement_group(group)
