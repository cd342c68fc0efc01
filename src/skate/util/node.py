"""Information about the node, and the names of its actors."""

from __future__ import annotations

import skate
import skate._engine as engines

#: The address on which Skate listens.
LOOPBACK = "127.0.0.1"


def get_node_ip_address() -> str:
    """Return the address of this node: loopback, because Skate listens on no other address."""
    return LOOPBACK


def get_node_instance_id() -> str:
    """Return the instance id of this node at a cloud provider; its node id in Skate."""
    return skate.get_runtime_context().get_node_id()


def list_named_actors(all_namespaces: bool = False) -> list[str] | list[dict[str, str]]:
    """Return the names of living named actors in this namespace, or of all with their namespaces."""
    rows = engines.current().named_actors(all_namespaces=all_namespaces)
    return rows if all_namespaces else [row["name"] for row in rows]
