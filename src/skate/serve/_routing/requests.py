"""A request as a router sees it, before it has a replica."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PendingRequest", "RequestMetadata", "RoutingProgress"]


@dataclass(slots=True)
class RequestMetadata:
    """What a request says of itself.

    Args:
        request_id: The id that stands in logs; calls that a request makes share it.
        internal_request_id: The id of this one call.
        call_method: The method that is called.
        route: The HTTP route that it came by, or "".
        app_name: The application.
        multiplexed_model_id: The model that it wants, or "".
        session_id: What it belongs to, or "".
        is_streaming: Whether its answers come one after the other.
        is_http_request: Whether it came over HTTP.
    """

    request_id: str
    internal_request_id: str
    call_method: str = "__call__"
    route: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    is_streaming: bool = False
    is_http_request: bool = False


@dataclass(slots=True)
class RoutingProgress:
    """Which replicas have been tried for a request, by routers that go from the best ones to all of them."""

    multiplexed_start_matching_time: float | None = None
    tried_first_multiplexed_models: bool = False
    tried_fewest_multiplexed_models: bool = False
    tried_same_node: bool = False
    tried_same_az: bool = False
    should_backoff: bool = False

    @property
    def tries(self) -> tuple[bool, ...]:
        """What has been tried so far."""
        return (
            self.tried_first_multiplexed_models,
            self.tried_fewest_multiplexed_models,
            self.tried_same_node,
            self.tried_same_az,
        )


@dataclass
class PendingRequest:
    """A request that waits for its replica.

    Args:
        args: What the deployment is called with; empty for HTTP requests, whose body is read by the replica alone.
        kwargs: The same by name.
        metadata: What the request says of itself.
        created_at: When it was made, by `time.time()`.
        routing_context: How far its routing has come.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    metadata: RequestMetadata
    created_at: float = field(default_factory=time.time)
    routing_context: RoutingProgress = field(default_factory=RoutingProgress)
