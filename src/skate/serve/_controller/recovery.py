"""Discovery of the actors and placement groups of a previous controller, and removal of those that nothing uses."""

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

__all__ = ["ExistingActors", "find_existing", "kill_named", "remove_orphans"]

logger = logging.getLogger("skate.serve")

_ACTOR_PREFIXES = (REPLICA_PREFIX, PROXY_PREFIX, DEPLOYMENT_ACTOR_PREFIX)


class ExistingActors(NamedTuple):
    """The names of Serve's existing actors and placement groups."""

    actors: set[str]
    groups: set[str]  # placement groups of replicas, which are named like their actors, and of gangs

    def without(self, needed: Collection[str]) -> ExistingActors:
        """Return those that are not in use."""
        return ExistingActors(self.actors.difference(needed), self.groups.difference(needed))


def find_existing() -> ExistingActors:
    """Return the existing actors and placement groups, except the controller."""
    named_actors = skate.util.list_named_actors(all_namespaces=True)
    names = (row["name"] for row in named_actors if isinstance(row, dict) and row["namespace"] == NAMESPACE)
    groups = (row["name"] for row in placement_group_table().values() if row["state"] != "REMOVED")
    return ExistingActors(
        {name for name in names if name.startswith(_ACTOR_PREFIXES)},
        {name for name in groups if name.startswith((REPLICA_PREFIX, GANG_PREFIX))},
    )


async def remove_orphans(orphans: ExistingActors) -> None:
    """Remove actors and placement groups that belong to no application.

    A controller may die after it has created an actor and before it could record it. It cannot have published such an
    actor, so nothing uses it.
    """
    loop = asyncio.get_running_loop()
    for name in orphans.actors:
        logger.warning("The actor %s belongs to no application. Killing it.", name)
        await loop.run_in_executor(None, kill_named, name)
    for name in orphans.groups:
        await loop.run_in_executor(None, _remove, name)


def kill_named(name: str) -> None:
    """Kill one of Serve's actors, if it exists."""
    try:
        actor = skate.get_actor(name, NAMESPACE)
    except ValueError:
        return  # it ended in the meantime
    skate.kill(actor)


def _remove(name: str) -> None:
    try:
        group = get_placement_group(name)
    except ValueError:
        return
    remove_placement_group(group)
