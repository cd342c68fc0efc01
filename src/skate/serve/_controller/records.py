"""The records of the controller's state that a restarted controller recovers from.

Specifications, which contain user code, are stored as entries of their own; records reference them by key.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skate.serve._schema.statuses import DeploymentStatus, DeploymentStatusTrigger
from skate.serve._wire.address import Address
from skate.serve.gang import GangContext

__all__ = [
    "ApplicationRecord",
    "ControllerRecord",
    "DeploymentRecord",
    "ProxyRecord",
    "ReplicaRecord",
    "decode",
    "encode",
]

FORMAT = 1
"""The version of the structs below; a controller refuses records of any other version."""


class ReplicaRecord(msgspec.Struct):
    """A replica, from before the creation of its actor until its end."""

    id: str
    spec: str  # the key of the deployment specification it was started with
    rank: int
    world_size: int
    phase: str
    started_at: float
    actor_id: str | None = None
    address: Address | None = None  # set once it runs
    info: dict[str, Any] = {}
    gang: GangContext | None = None


class DeploymentRecord(msgspec.Struct):
    """The desired and the actual state of a deployment."""

    spec: str
    target: int
    status: DeploymentStatus
    trigger: DeploymentStatusTrigger
    message: str
    is_deleting: bool
    last_healthy: str | None  # the key of the last healthy specification
    failures: int
    replicas: list[ReplicaRecord]


class ApplicationRecord(msgspec.Struct):
    """An application with its deployments by name."""

    spec: str
    parts: list[str]  # the keys of the deployments' specifications
    deployments: dict[str, DeploymentRecord]
    deployed_at: float
    is_deleting: bool
    is_building: bool
    build_error: str


class ProxyRecord(msgspec.Struct):
    """The proxy: the name of its actor, and its addresses once it listens."""

    actor: str
    info: dict[str, Any] | None = None


class ControllerRecord(msgspec.Struct):
    """The whole state of the controller."""

    applications: list[ApplicationRecord] = []
    proxy: ProxyRecord | None = None
    declared: str | None = None  # the key of the configuration file and its import folder
    target_capacity: float | None = None
    is_ramping_up: bool = False
    format: int = FORMAT


class _Format(msgspec.Struct):
    format: int


def encode(record: ControllerRecord) -> bytes:
    """Return a record as bytes."""
    return msgspec.msgpack.encode(record)


def decode(data: bytes) -> ControllerRecord:
    """Return a record from its bytes.

    Raises:
        RuntimeError: If another version of Skate wrote the record.
    """
    found = msgspec.msgpack.decode(data, type=_Format).format
    if found != FORMAT:
        raise RuntimeError(
            f"The stored state of Serve's controller has format {found}, but this version of Skate reads format "
            f"{FORMAT}. End the session and deploy again."
        )
    return msgspec.msgpack.decode(data, type=ControllerRecord)
