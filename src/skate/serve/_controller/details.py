"""The full state of Serve, for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import skate
from skate.serve._config.http import HTTPOptionsSchema, gRPCOptionsSchema
from skate.serve._controller.applications import ApplicationReconciler
from skate.serve._controller.deployments import DeploymentReconciler
from skate.serve._controller.placement import required_resources
from skate.serve._controller.proxies import ProxySupervisor
from skate.serve._controller.replicas import ReplicaSupervisor
from skate.serve._runtime.ids import CONTROLLER_NAME
from skate.serve._schema.config_file import to_schema
from skate.serve._schema.details import (
    ApplicationDetails,
    DeploymentDetails,
    DeploymentNode,
    DeploymentTopology,
    ProxyDetails,
    ReplicaDetails,
    ServeActorDetails,
    ServeInstanceDetails,
    Target,
    TargetGroup,
)
from skate.serve._schema.statuses import APIType, ReplicaState, RequestProtocol
from skate.util import get_node_ip_address

__all__ = ["instance_details"]


def instance_details(
    apps: Iterable[ApplicationReconciler], proxy: ProxySupervisor, target_capacity: float | None
) -> ServeInstanceDetails:
    """Return the full state of Serve."""
    from skate.serve._config.defaults import ProxyLocation

    http, grpc = proxy.options
    context = skate.get_runtime_context()
    address = get_node_ip_address()
    return ServeInstanceDetails(
        controller_info=ServeActorDetails(
            node_id=context.get_node_id(),
            node_ip=address,
            node_instance_id="",
            actor_id=context.get_actor_id(),
            actor_name=CONTROLLER_NAME,
            worker_id=context.get_worker_id(),
        ),
        proxy_location=ProxyLocation.Disabled if http is None else ProxyLocation.EveryNode,
        http_options=None
        if http is None
        else HTTPOptionsSchema.model_validate(_known_fields(HTTPOptionsSchema, http)),
        grpc_options=None
        if grpc is None
        else gRPCOptionsSchema.model_validate(_known_fields(gRPCOptionsSchema, grpc)),
        proxies={
            node: ProxyDetails(node_id=node, node_ip=address, status=status)
            for node, status in proxy.statuses().items()
        },
        applications={app.spec.name: _application(app) for app in apps},
        target_capacity=target_capacity,
        target_groups=[] if http is None else [_target_group(http, context.get_node_id())],
    )


def _known_fields(schema: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in given.items() if name in schema.model_fields and "password" not in name
    }


def _target_group(http: dict[str, Any], node: str) -> TargetGroup:
    target = Target(ip=http["host"], port=http["port"], instance_id="", name=node)
    return TargetGroup(targets=[target], route_prefix="/", protocol=RequestProtocol.HTTP)


def _application(app: ApplicationReconciler) -> ApplicationDetails:
    spec = app.spec
    return ApplicationDetails(
        name=spec.name,
        route_prefix=spec.route_prefix,
        docs_path=_docs_path(app),
        status=app.status,
        message=app.message,
        last_deployed_time_s=app.deployed_at,
        deployed_app_config=spec.config,  # type: ignore[arg-type]  # pydantic converts it
        source=APIType.DECLARATIVE if spec.is_declarative else APIType.IMPERATIVE,
        deployments={name: _deployment(each) for name, each in app.deployments.items()},
        external_scaler_enabled=spec.external_scaler_enabled,
        deployment_topology=_topology(app),
    )


def _docs_path(app: ApplicationReconciler) -> str | None:
    ingress = app.deployments.get(app.spec.ingress)
    below = {each.info.get("docs_path") for each in ingress.replicas.values()} if ingress else set()
    path = next((path for path in below if path), None)
    return None if path is None or app.spec.route_prefix is None else app.spec.route_prefix.rstrip("/") + path


def _topology(app: ApplicationReconciler) -> DeploymentTopology | None:
    spec = app.spec
    if not spec.deployments:
        return None
    nodes = {
        each.id.name: DeploymentNode(
            name=each.id.name,
            app_name=spec.name,
            outbound_deployments=[{"name": name, "app_name": spec.name} for name in each.calls],
            is_ingress=each.is_ingress,
        )
        for each in spec.deployments
    }
    return DeploymentTopology(app_name=spec.name, nodes=nodes, ingress_deployment=spec.ingress)


def _deployment(reconciler: DeploymentReconciler) -> DeploymentDetails:
    overview = reconciler.overview
    return DeploymentDetails(
        name=reconciler.spec.id.name,
        status=overview.status,
        status_trigger=overview.status_trigger,
        message=overview.message,
        deployment_config=to_schema(reconciler.spec.options),
        target_num_replicas=reconciler.target,
        required_resources=required_resources(reconciler.spec.options),
        replicas=[_replica(each) for each in reconciler.replicas.values()],
    )


def _replica(reconciler: ReplicaSupervisor) -> ReplicaDetails:
    return ReplicaDetails(
        node_id=reconciler.info.get("node"),
        actor_id=reconciler.actor_id,
        actor_name=reconciler.spec.id.actor_name,
        replica_id=reconciler.id,
        state=ReplicaState(reconciler.phase.value),
        pid=reconciler.info.get("pid"),
        start_time_s=reconciler.started_at,
    )
