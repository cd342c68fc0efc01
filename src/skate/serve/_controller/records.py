"""What the controller writes down: all that it has to know to go on where another one was killed.

Specifications, which hold users' code, stand on pages of their own and are named here by their keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skate.serve._schema.statuses import DeploymentStatus, DeploymentStatusTrigger
from skate.serve._wire.address import Address
from skate.serve.gang import GangContext

__all__ = [
    "ApplicationRecord",
    "DeploymentRecord",
    "ProxyRecord",
    "Record",
    "ReplicaRecord",
    "decode",
    "encode",
]

FORMAT = 1
"""Changes with the structs below: a controller does not guess what another version of Skate meant."""


class ReplicaRecord(msgspec.Struct):
    """A replica, from before its actor is made until it is gone."""

    id: str
    spec: str  # the key of the deployment's specification that it was started by
    rank: int
    world_size: int
    phase: str
    started_at: float
    actor_id: str | None = None
    address: Address | None = None  # once it has run
    info: dict[str, Any] = {}
    gang: GangContext | None = None


class DeploymentRecord(msgspec.Struct):
    """A deployment: what it should be, and what there is of it."""

    spec: str
    target: int
    status: DeploymentStatus
    trigger: DeploymentStatusTrigger
    message: str
    is_deleting: bool
    stable: str | None  # the key of the specification that was healthy last
    failures: int
    replicas: list[ReplicaRecord]


class ApplicationRecord(msgspec.Struct):
    """An application, its deployments by name."""

    spec: str
    parts: list[str]  # the keys of its deployments' specifications
    deployments: dict[str, DeploymentRecord]
    deployed_at: float
    is_deleting: bool
    is_building: bool
    problem: str


class ProxyRecord(msgspec.Struct):
    """The proxy: its actor, and where it listens once it does."""

    actor: str
    info: dict[str, Any] | None = None


class Record(msgspec.Struct):
    """Everything."""

    applications: list[ApplicationRecord] = []
    proxy: ProxyRecord | None = None
    declared: str | None = None  # the key of the configuration file, and of where its modules are
    target_capacity: float | None = None
    capacity_is_growing: bool = False
    format: int = FORMAT


class _Format(msgspec.Struct):
    format: int


def encode(record: Record) -> bytes:
    """Return a record as bytes."""
    return msgspec.msgpack.encode(record)


def decode(data: bytes) -> Record:
    """Return a record from its bytes.

    Raises:
        RuntimeError: Another version of Skate wrote it.
    """
    found = msgspec.msgpack.decode(data, type=_Format).format
    if found != FORMAT:
        raise RuntimeError(
            f"What Serve's controller wrote down has format {found}, and this version of Skate reads {FORMAT}. "
            "End the session and deploy again."
        )
    return msgspec.msgpack.decode(data, type=Record)
