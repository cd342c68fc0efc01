"""Nodes, actors and the status of a cluster over HTTP, and health checks: the paths of Ray's dashboard."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from skate._api.observer import ActorLife, Observer
from skate.dashboard._machine import machine, process
from skate.dashboard._node import Node
from skate.dashboard._rest import as_envelope, as_text, envelope
from skate.dashboard._sampler import Sampler
from skate.dashboard._topics import Problem
from skate.util.node import LOOPBACK
from skate.util.state._rows import rows
from skate.util.state.common import StateResource

__all__ = ["ClusterApi"]

_NODES: Final = "The nodes and actors of a Ray cluster are in Ray's own dashboard."
_VIEWS: Final = ("summary", "hostNameList")
_WAITING: Final = ("PENDING_NODE_ASSIGNMENT", "PENDING_ARGS_AVAIL")
_NO_LIFE: Final = ActorLife(0.0, 0.0, "")  # an actor that was created between two questions
_HEALTH: Final = "application/text"  # Ray's type of these answers


class ClusterApi:
    """The paths /nodes, /logical/actors, /api/cluster_status, and those of health checks.

    Args:
        node: The node.
        sampler: The samples of the machine.
    """

    def __init__(self, node: Node, sampler: Sampler) -> None:
        self._node = node
        self._sampler = sampler

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        answers = (
            ("/nodes", self._nodes),
            ("/nodes/{id}", self._node_details),
            ("/logical/actors", self._actors),
            ("/logical/actors/{id}", self._actor),
            ("/api/cluster_status", self._status),
        )
        checks = (
            ("/api/gcs_healthz", "success"),
            ("/api/local_raylet_healthz", "success"),
            ("/api/healthz", "raylet: success\ngcs: success"),
        )
        return [
            *(Route(path, as_envelope(handle), methods=["GET"]) for path, handle in answers),
            *(Route(path, as_text(self._health(text)), methods=["GET"]) for path, text in checks),
        ]

    # ------------------------------------------------------------ nodes

    async def _nodes(self, request: Request) -> Response:
        view = request.query_params.get("view")
        if view not in _VIEWS:
            raise Problem(400, f"view must be one of {', '.join(_VIEWS)}, got {view!r}.")
        self._node.local_session(_NODES)
        facts = await self._node.ask(_facts)
        host = await self._node.run(machine, self._sampler.history())
        if view == "hostNameList":
            return envelope("", {"hostNameList": [host["hostname"]]})
        usage = "\n".join(
            f"{used:g}/{total:g} {name}" for name, (used, total) in sorted(_usage(facts).items())
        )
        summary = {**host, "ip": LOOPBACK, "raylet": _raylet(facts, host)}
        return envelope("", {"summary": [summary], "nodeLogicalResources": {facts["node_id"]: usage}})

    async def _node_details(self, request: Request) -> Response:
        self._node.local_session(_NODES)
        id = request.path_params["id"]
        if id != self._node.observer.node_id:
            raise Problem(404, f"There is no node with the id {id}.")
        facts = await self._node.ask(_facts)
        host = await self._node.run(machine, self._sampler.history())
        actors = await self._node.ask(_actors)
        workers = await self._node.run(_processes, facts["workers"])
        detail = {
            **host,
            "ip": LOOPBACK,
            "raylet": _raylet(facts, host),
            "actors": {id: actor for id, actor in actors.items() if actor["state"] == "ALIVE"},
            "workers": workers,
        }
        return envelope("", {"detail": detail})

    # ------------------------------------------------------------ actors

    async def _actors(self, request: Request) -> Response:
        self._node.local_session(_NODES)
        found = await self._node.ask(_actors)
        wanted = request.query_params.get("ids")
        shown: dict[str, Any] = dict(found)
        if wanted is not None:
            shown = {id: found.get(id) for id in wanted.split(",") if id}
        return envelope("", {"actors": shown})

    async def _actor(self, request: Request) -> Response:
        self._node.local_session(_NODES)
        id = request.path_params["id"]
        found = (await self._node.ask(_actors)).get(id)
        if found is None:
            raise Problem(404, f"There is no actor with the id {id}.")
        stats = await self._node.run(process, found["pid"]) if found["pid"] else None
        return envelope("", {"detail": {**found, "processStats": stats}})

    # ------------------------------------------------------------ the cluster

    async def _status(self, request: Request) -> Response:
        self._node.local_session("The status of a Ray cluster is in Ray's own dashboard.")
        facts = await self._node.ask(_facts)
        demands = await self._node.ask(_demands)
        usage = _usage(facts)
        if request.query_params.get("format") == "1":
            return envelope("", {"clusterStatus": _as_text(usage, demands)})
        status = {
            "time": time.time(),
            "loadMetricsReport": {
                "headIp": LOOPBACK,
                "usage": _renamed(usage),
                "usageByNode": {facts["node_id"]: _renamed(usage)},
                "resourceDemand": demands["tasks"],
                "pgDemand": demands["groups"],
                "requestDemand": [],
                "nodeTypes": [[_renamed(facts["total"]), 1]],
            },
            "autoscalerReport": {
                "activeNodes": {"head": 1},
                "idleNodes": {},
                "pendingNodes": [],
                "pendingLaunches": {},
                "failedNodes": [],
            },
        }
        return envelope("", {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": status})

    def _health(self, text: str) -> Any:
        async def check(_: Request) -> Response:
            await self._node.ask(lambda node: node.engine.available())
            return Response(text, media_type=_HEALTH)

        return check


def _facts(node: Observer) -> dict[str, Any]:
    """Return the row of the node, its resources and its processes."""
    (row,) = rows(node.engine, StateResource.NODES)
    workers = rows(node.engine, StateResource.WORKERS)
    return {
        "row": row,
        "node_id": node.node_id,
        "session": node.session,
        "total": node.engine.resources(),
        "available": node.engine.available(),
        "store": node.object_store(),
        "workers": [worker["pid"] for worker in workers if worker["is_alive"]],
        "about": node.about(),
    }


def _raylet(facts: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    row, store = facts["row"], facts["store"]
    started = facts["about"]["started"]
    return {
        "nodeId": row["node_id"],
        "nodeManagerAddress": row["node_ip"],
        "nodeManagerHostname": host["hostname"],
        "nodeName": row["node_name"],
        "state": row["state"],
        "stateMessage": row["state_message"],
        "isHeadNode": row["is_head_node"],
        "resourcesTotal": _renamed(row["resources_total"]),
        "labels": row["labels"],
        "pid": facts["about"]["pid"],
        "numWorkers": len(facts["workers"]),
        "startTimeMs": None if started is None else int(started * 1000),
        "endTimeMs": 0,
        "sessionDir": facts["session"],
        "objectStoreUsedMemory": store["used"],
        "objectStoreAvailableMemory": max(0, store["budget"] - store["used"]),
    }


def _processes(pids: Iterable[int]) -> list[dict[str, Any]]:
    found = (process(pid) for pid in pids)
    return [{**each, "language": "PYTHON"} for each in found if each is not None]


def _actors(node: Observer) -> dict[str, dict[str, Any]]:
    """Return the actors by id."""
    lives = node.actor_lives()
    return {
        row["actor_id"]: _actor_details(row, lives.get(row["actor_id"], _NO_LIFE))
        for row in rows(node.engine, StateResource.ACTORS)
    }


def _actor_details(row: Any, life: ActorLife) -> dict[str, Any]:
    cause = (row["death_cause"] or {}).get("actor_died_error_context", {})
    return {
        "actorId": row["actor_id"],
        "jobId": row["job_id"],
        "pid": row["pid"],
        "address": {
            "nodeId": row["node_id"] or "",
            "ipAddress": LOOPBACK,
            "port": 0,
            "workerId": life.worker if row["node_id"] else "",
        },
        "state": row["state"],
        "name": row["name"] or "",
        "rayNamespace": row["ray_namespace"],
        "numRestarts": str(row["num_restarts"]),
        "className": row["class_name"],
        "actorClass": row["class_name"],
        "startTime": int(life.started * 1000),
        "endTime": int(life.ended * 1000),
        "reprName": row["repr_name"] or "",
        "placementGroupId": row["placement_group_id"],
        "callSite": row["call_site"] or "",
        "labelSelector": row["label_selector"] or {},
        "isDetached": row["is_detached"],
        "requiredResources": row["required_resources"] or {},
        "exitDetail": cause.get("error_message") or "-",
        "gpus": [],
        "tpus": [],
        "processStats": None,
    }


def _demands(node: Observer) -> dict[str, Any]:
    """Return the resources that tasks and placement groups wait for, each with a number."""
    tasks = Counter(
        tuple(sorted((row["required_resources"] or {}).items()))
        for row in rows(node.engine, StateResource.TASKS)
        if row["state"] in _WAITING
    )
    groups = Counter(
        tuple(tuple(sorted(bundle["unit_resources"].items())) for bundle in row["bundles"] or ())
        for row in rows(node.engine, StateResource.PLACEMENT_GROUPS)
        if row["state"] == "PENDING"
    )
    return {
        "tasks": [[dict(resources), count] for resources, count in tasks.items()],
        "groups": [[[dict(bundle) for bundle in bundles], count] for bundles, count in groups.items()],
    }


def _usage(facts: dict[str, Any]) -> dict[str, list[float]]:
    """Return the used amount and the total of each resource."""
    total, available = facts["total"], facts["available"]
    return {name: [amount - available.get(name, 0.0), amount] for name, amount in total.items()}


def _as_text(usage: dict[str, list[float]], demands: dict[str, Any]) -> str:
    waiting = [f" {demand}: {count} waiting" for demand, count in (*demands["tasks"], *demands["groups"])]
    return "\n".join(
        [
            "Resources",
            *(f" {used:g}/{total:g} {name}" for name, (used, total) in sorted(usage.items())),
            "Demands",
            *(waiting or [" (no resource demands)"]),
        ]
    )


def _renamed(amounts: dict[str, Any]) -> dict[str, Any]:
    """Return resources under the names of Ray's dashboard, as in objectStoreMemory."""
    return {_camel_case(name): amount for name, amount in amounts.items()}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)
