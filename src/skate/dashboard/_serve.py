"""Serve: applications, deployments and replicas, with rates and latencies from the metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import QueryParams

from skate._api.observer import Observer
from skate.dashboard._metrics import Metrics, Rates, Totals
from skate.dashboard._node import Node
from skate.util._metrics_export import quantiles
from skate.util.state._rows import rows
from skate.util.state.common import StateResource

__all__ = ["CONTROLLER", "Serve"]

CONTROLLER: Final = "SERVE_CONTROLLER_ACTOR"
_REQUESTS: Final = "serve_deployment_request_counter"
_ERRORS: Final = "serve_deployment_error_counter"
_RUNNING: Final = "serve_replica_processing_queries"
_QUEUED: Final = "serve_deployment_queued_queries"
_LATENCY: Final = "serve_deployment_processing_latency_ms"


class Serve:
    """The topic /state/serve.

    Args:
        node: The node.
        metrics: The metrics of the session.
    """

    def __init__(self, node: Node, metrics: Metrics) -> None:
        self._node = node
        self._metrics = metrics
        self._rates = Rates(time.monotonic)

    async def handle(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        """Return all applications."""
        return await self._node.share("serve", self._describe)

    async def _describe(self) -> dict[str, Any]:
        self._node.local_session("The applications of a Ray cluster are in Ray's own dashboard.")
        # Importing Serve takes long: first see whether it runs.
        if not await self._node.ask(_is_running):
            return {"applications": [], "proxies": [], "http": None}
        details, http = await self._node.call(_details)
        totals = Totals(await self._metrics.series(), "application", "deployment")
        counted = {
            (name, *tags): totals.value(name, *tags)
            for name in (_REQUESTS, _ERRORS)
            for tags in totals.tags_of(name)
        }
        rates = self._rates.add(counted)
        return {
            "applications": [_application(app, totals, rates) for app in details["applications"].values()],
            "proxies": [
                {"node_id": node, "status": proxy["status"]} for node, proxy in details["proxies"].items()
            ],
            "http": http,
        }


def _is_running(node: Observer) -> bool:
    return any(
        row["name"] == CONTROLLER and row["state"] == "ALIVE"
        for row in rows(node.engine, StateResource.ACTORS)
    )


def _details() -> tuple[dict[str, Any], str | None]:
    """Return the state of Serve and the URL of its proxy."""
    from skate.serve._controller.client import connect

    client = connect()
    if client is None:
        return {"applications": {}, "proxies": {}}, None
    details = client.details()
    address = None if details.http_options is None else client.http_address()
    return details.model_dump(mode="json"), None if address is None else f"http://{address[0]}:{address[1]}"


def _application(app: dict[str, Any], totals: Totals, rates: Mapping[Any, float] | None) -> dict[str, Any]:
    return {
        "name": app["name"],
        "route": app["route_prefix"],
        "status": app["status"],
        "message": app["message"],
        "deployments": [
            _deployment(each, app["name"], totals, rates) for each in app["deployments"].values()
        ],
    }


def _deployment(
    each: dict[str, Any], app: str, totals: Totals, rates: Mapping[Any, float] | None
) -> dict[str, Any]:
    tags = app, each["name"]
    boundaries, counts = totals.histogram(_LATENCY, *tags) or ([], [])
    return {
        "name": each["name"],
        "status": each["status"],
        "message": each["message"],
        "target": each["target_num_replicas"],
        "replicas": [
            {"id": replica["replica_id"], "state": replica["state"], "pid": replica["pid"]}
            for replica in each["replicas"]
        ],
        "requests_per_s": None if rates is None else rates[_REQUESTS, *tags],
        "errors_per_s": None if rates is None else rates[_ERRORS, *tags],
        "requests": totals.value(_REQUESTS, *tags),
        "errors": totals.value(_ERRORS, *tags),
        "running": totals.value(_RUNNING, *tags),
        "queued": totals.value(_QUEUED, *tags),
        "latency": {"buckets_ms": boundaries, "counts": counts, **quantiles(boundaries, counts)},
    }
