"""Utilities on top of the core: pools, queues, placement groups, metrics, state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate.util import accelerators, collective, metrics, queue, rpdb, scheduling_strategies, state
    from skate.util.actor_pool import ActorPool
    from skate.util.check_serialize import inspect_serializability
    from skate.util.client_connect import connect, disconnect
    from skate.util.debug import disable_log_once_globally, enable_periodic_logging, log_once
    from skate.util.helpers import as_completed, map_unordered
    from skate.util.node import get_node_instance_id, get_node_ip_address, list_named_actors
    from skate.util.placement_group import (
        get_current_placement_group,
        get_placement_group,
        placement_group,
        placement_group_table,
        remove_placement_group,
    )
    from skate.util.serialization import deregister_serializer, register_serializer

# Modules are loaded on first use, which keeps `import skate.util` fast.
_HOME = {
    "ActorPool": "actor_pool",
    "as_completed": "helpers",
    "connect": "client_connect",
    "deregister_serializer": "serialization",
    "disable_log_once_globally": "debug",
    "disconnect": "client_connect",
    "enable_periodic_logging": "debug",
    "get_current_placement_group": "placement_group",
    "get_node_instance_id": "node",
    "get_node_ip_address": "node",
    "get_placement_group": "placement_group",
    "inspect_serializability": "check_serialize",
    "list_named_actors": "node",
    "log_once": "debug",
    "map_unordered": "helpers",
    "placement_group": "placement_group",
    "placement_group_table": "placement_group",
    "register_serializer": "serialization",
    "remove_placement_group": "placement_group",
}
_MODULES = (
    "accelerators",
    "collective",
    "metrics",
    "queue",
    "rpdb",
    "scheduling_strategies",
    "state",
)

__all__ = [
    "ActorPool",
    "accelerators",
    "as_completed",
    "collective",
    "connect",
    "deregister_serializer",
    "disable_log_once_globally",
    "disconnect",
    "enable_periodic_logging",
    "get_current_placement_group",
    "get_node_instance_id",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "metrics",
    "placement_group",
    "placement_group_table",
    "queue",
    "register_serializer",
    "remove_placement_group",
    "rpdb",
    "scheduling_strategies",
    "state",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOME:
        value = getattr(import_module(f"skate.util.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"skate.util.{name}")
    else:
        raise AttributeError(f"module 'skate.util' has no attribute {name!r}")
    globals()[name] = value
    return value
