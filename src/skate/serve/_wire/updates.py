"""The values that the controller publishes to callers and proxies, and the load reports that it receives."""

from __future__ import annotations

from typing import Any

import msgspec

from skate.serve._config import defaults
from skate.serve._wire.address import Address

__all__ = ["DeploymentUpdate", "LoadReport", "ReplicaInfo", "Route", "RouterUpdate"]


class Route(msgspec.Struct, frozen=True):
    """The route of one application."""

    prefix: str
    app: str
    deployment: str
    is_asgi: bool = False
    is_ready: bool = True
    retry_lost: bool | None = None

    @property
    def root(self) -> str:
        """The prefix that the application does not see, or ""."""
        return "" if self.prefix == "/" else self.prefix


class ReplicaInfo(msgspec.Struct):
    """A replica that callers can connect to."""

    id: str
    actor: str  # the name of its actor
    address: Address
    max_ongoing_requests: int
    node: str = ""
    actor_id: str = ""


class RouterUpdate(msgspec.Struct):
    """The user-defined router of a deployment."""

    path: str
    code: bytes | None = None  # the pickled class, if it has no import path
    kwargs: dict[str, Any] = {}
    initial_backoff_s: float = defaults.ROUTER_INITIAL_BACKOFF_S
    backoff_multiplier: float = defaults.ROUTER_BACKOFF_MULTIPLIER
    max_backoff_s: float = defaults.ROUTER_MAX_BACKOFF_S

    def has_same_router(self, other: RouterUpdate) -> bool:
        """Return whether both describe the same router, apart from its backoff."""
        return (self.path, self.code, self.kwargs) == (other.path, other.code, other.kwargs)


class DeploymentUpdate(msgspec.Struct):
    """The state of a deployment, for its callers."""

    replicas: list[ReplicaInfo]
    max_queued: int = -1
    retry_after_s: float | None = None
    status_code: int = 503
    retry_lost: bool | None = None
    report_every_s: float = 0.0  # how often callers report their load; 0 without autoscaling
    exists: bool = True
    router: RouterUpdate | None = None  # a user-defined router
    obstacle: str = ""  # why the deployment cannot have replicas, if so

    @property
    def takes_requests(self) -> bool:
        """Whether requests may wait for a replica."""
        return self.exists and (not self.obstacle or bool(self.replicas))


class LoadReport(msgspec.Struct):
    """The queued requests of a caller, and its ongoing requests at each replica."""

    deployment: str
    queued: int
    running: dict[str, int]
    at: float  # when it was written, by `time.time()`
