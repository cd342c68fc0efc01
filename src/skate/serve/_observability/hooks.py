"""The requests that logs, metrics and traces describe, and the hook by which tracing enters the router."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from skate.serve._runtime.ids import DeploymentID
    from skate.serve._wire.frames import Context
    from skate.serve.context import _RequestContext

__all__ = ["RoutedRequest", "ServedRequest", "start_route_span"]


class RoutedRequest(Protocol):
    """A request for which a router chooses a replica."""

    context: Context
    span: Any


class ServedRequest(Protocol):
    """A request that a replica has begun."""

    began: float
    context: _RequestContext
    status: int
    error: BaseException | None


start_route_span: Callable[[RoutedRequest, DeploymentID], None] | None = None
"""Start the span of a request's way to a replica. None without tracing."""
