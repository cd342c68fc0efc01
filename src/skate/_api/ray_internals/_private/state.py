"""Stands for `ray._private.state`: what there is, as Ray's older tables show it."""

from __future__ import annotations

from typing import Any

from skate._api.cluster import available_resources, cluster_resources
from skate.util.node import get_node_ip_address
from skate.util.state import api
from skate.util.state.common import ActorState

__all__ = ["actors", "available_resources", "cluster_resources"]


def actors(actor_id: str | None = None) -> dict[str, Any]:
    """Return the row of one actor, or a table of all by their ids; {} if there is no such actor."""
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
