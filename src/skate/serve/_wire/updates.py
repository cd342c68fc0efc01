"""Which application answers which path."""

from __future__ import annotations

from typing import Any

import msgspec

from skate.serve._config import defaults
from skate.serve._wire.address import Address

__all__ = ["DeploymentUpdate", "LoadReport", "ReplicaInfo", "Route", "RouterUpdate"]


class Route(msgspec.Struct, frozen=True):
    """The way to one application."""

    prefix: str
    app: str
    deployment: str
    is_asgi: bool = False
    is_ready: bool = True
    retry_lost: bool | None = None

    @property
    def root(self) -> str:
        """What stands before the paths that the application knows."""
        return "" if self.prefix == "/" else self.prefix


class ReplicaInfo(msgspec.Struct):
    """What the controller tells of a replica."""

    id: str
    actor: str  # the name of its actor
    address: Address
    max_ongoing_requests: int  # requests that it takes at a time
    node: str = ""
    actor_id: str = ""


class RouterUpdate(msgspec.Struct):
    """Which router a deployment wants, as its callers are told."""

    path: str
    code: bytes | None = None  # of a class that was given as such
    kwargs: dict[str, Any] = {}
    initial_backoff_s: float = defaults.ROUTER_INITIAL_BACKOFF_S
    backoff_multiplier: float = defaults.ROUTER_BACKOFF_MULTIPLIER
    max_backoff_s: float = defaults.ROUTER_MAX_BACKOFF_S

    def has_same_router(self, other: RouterUpdate) -> bool:
        """Tell whether a router that was made by the other is also the one wanted here."""
        return (self.path, self.code, self.kwargs) == (other.path, other.code, other.kwargs)


class DeploymentUpdate(msgspec.Struct):
    """What the controller tells of a deployment."""

    replicas: list[ReplicaInfo]
    max_queued: int = -1
    retry_after_s: float | None = None
    status_code: int = 503
    retry_lost: bool | None = None
    report_every_s: float = 0.0  # how often callers tell their loads; 0 where nobody scales by it
    exists: bool = True
    router: RouterUpdate | None = None  # the user's own
    obstacle: str = ""  # why there can never be a replica, if so

    @property
    def takes_requests(self) -> bool:
        """Whether a request that no replica has drain for may wait."""
        return self.exists and (not self.obstacle or bool(self.replicas))


class LoadReport(msgspec.Struct):
    """How many requests wait at a caller, and how many it has sent to each replica."""

    deployment: str
    queued: int
    running: dict[str, int]
    at: float  # when it was written, in seconds since 1970
