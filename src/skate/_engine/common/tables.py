"""Tables in Ray's format: nodes and placement groups."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any


def node_row(
    node: bytes, session: str, resources: dict[str, float], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the row of the only node."""
    return {
        "NodeID": node.hex(),
        "Alive": True,
        "NodeManagerAddress": "127.0.0.1",
        "NodeManagerHostname": socket.gethostname(),
        "NodeManagerPort": 0,
        "ObjectManagerPort": 0,
        "ObjectStoreSocketName": "",
        "RayletSocketName": os.path.join(session, "node.sock"),
        "MetricsExportPort": 0,
        "NodeName": "127.0.0.1",
        "RuntimeEnvAgentPort": 0,
        "DeathReason": 0,
        "DeathReasonMessage": "",
        "alive": True,
        "Resources": resources,
        "Labels": {**labels, "ray.io/node-id": node.hex()},
    }


def group_table(rows: Iterable[Mapping[str, Any]], node: bytes) -> dict[str, dict[str, Any]]:
    """Return placement groups by their id, from the rows of the state API."""
    table = {}
    for row in rows:
        id = row["placement_group_id"].hex()
        created = row["state"] == "CREATED"
        table[id] = {
            "placement_group_id": id,
            "name": row["name"],
            "bundles": dict(enumerate(row["bundles"])),
            "bundles_to_node_id": {
                index: node.hex() if created else "" for index in range(len(row["bundles"]))
            },
            "strategy": row["strategy"],
            "state": "PENDING" if row["state"] == "INFEASIBLE" else row["state"],
            "stats": {"scheduling_state": "INFEASIBLE" if row["impossible"] else row["state"]},
        }
    return table
