"""Replaces `ray._private.state`: tables in the form of older versions of Ray."""

from __future__ import annotations

from typing import Any

from skate._api.cluster import available_resources, cluster_resources, nodes, timeline
from skate.util.node import get_node_ip_address
from skate.util.placement_group import placement_group_table
from skate.util.state import api
from skate.util.state.common import ActorState

__all__ = [
    "GlobalState",
    "actors",
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "node_ids",
    "nodes",
    "state",
    "timeline",
    "total_resources_per_node",
]


def actors(actor_id: str | None = None) -> dict[str, Any]:
    """Return the row of one actor, {} if it does not exist; or all rows by id."""
    if actor_id is not None:
        found = api.get_actor(actor_id)
        return {} if found is None else _row(found)
    return {actor.actor_id: _row(actor) for actor in api.list_actors(detail=True)}


def _row(actor: ActorState) -> dict[str, Any]:
    return {
        "ActorID": actor.actor_id,
        "ActorClassName": actor.class_name,
        "Name": actor.name or "",
        "JobID": actor.job_id,
        "State": actor.state,
        "Pid": actor.pid,
        "NumRestarts": actor.num_restarts,
        "Address": {"NodeID": actor.node_id, "IPAddress": get_node_ip_address()},
    }


def node_ids() -> list[str]:
    """Return the resources that represent nodes, like `node:10.0.0.1`."""
    return [name for name in cluster_resources() if name.startswith("node:")]


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """Return the resources of each living node, by id."""
    return {node["NodeID"]: node["Resources"] for node in nodes() if node["Alive"]}


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """Return the available resources of each living node, by id.

    Raises:
        NotImplementedError: There are several nodes, which only the ray engine has.
    """
    living = [node["NodeID"] for node in nodes() if node["Alive"]]
    if len(living) > 1:
        raise NotImplementedError(
            "Skate does not know which of several nodes has free resources; available_resources() sums them up."
        )
    return {node: available_resources() for node in living}


class GlobalState:
    """The tables above as methods, for programs that use `ray._private.state.state`."""

    def actor_table(self, actor_id: str | None = None, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the row of one actor, or all rows by id."""
        return actors(actor_id)

    def node_table(self) -> list[dict[str, Any]]:
        """Return the nodes, as `ray.nodes()` does."""
        return nodes()

    def placement_group_table(self, placement_group_id: Any = None) -> dict[str, Any]:
        """Return the row of one placement group, or all rows by id."""
        table = placement_group_table()
        return table if placement_group_id is None else table.get(placement_group_id.hex(), {})

    def cluster_resources(self) -> dict[str, float]:
        """Return the resources of all nodes."""
        return cluster_resources()

    def available_resources(self) -> dict[str, float]:
        """Return the available resources."""
        return available_resources()

    def available_resources_per_node(self) -> dict[str, dict[str, float]]:
        """Return the available resources of each node."""
        return available_resources_per_node()

    def total_resources_per_node(self) -> dict[str, dict[str, float]]:
        """Return the resources of each node."""
        return total_resources_per_node()

    def chrome_tracing_dump(self, filename: str | None = None) -> list[dict[str, Any]] | None:
        """Return the timeline, or write it to a file, as `ray.timeline` does."""
        return timeline(filename)


state = GlobalState()
