"""What a replica has to know to start."""

from __future__ import annotations

from dataclasses import dataclass

from skate.serve._config.options import DeploymentOptions
from skate.serve._runtime.ids import ReplicaID
from skate.serve._watch.options import WatchOptions
from skate.serve.gang import GangContext

__all__ = ["ReplicaSpec"]


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica that is to be started. The user's code stays packed until it is where it runs."""

    id: ReplicaID
    code: bytes  # the class or function
    init: bytes  # its positional and named arguments
    options: DeploymentOptions
    version: str
    rank: int = 0
    world_size: int = 1
    is_ingress: bool = False
    route_prefix: str | None = None
    gang: GangContext | None = None  # those it was placed with, and starts and stops with
    watch: WatchOptions = WatchOptions()  # noqa: RUF009 - it is frozen
