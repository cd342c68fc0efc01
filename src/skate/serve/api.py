"""The functions of `skate.serve`: deploy, run, inspect and delete applications."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import skate
from skate.air import _arguments as arguments
from skate.serve._build import build, check_code
from skate.serve._build.ingress import make_ingress
from skate.serve._config import validation
from skate.serve._config.defaults import APP_NAME, DEFAULT
from skate.serve._config.options import DeploymentOptions
from skate.serve._config.validation import check_route_prefix
from skate.serve._controller.client import Client, connect, connect_or_begin, connect_or_start, disconnect
from skate.serve._router.runtime import prepare
from skate.serve._runtime.ids import DeploymentID
from skate.serve._schema.statuses import ServeStatus
from skate.serve.context import (
    _get_replica,
    get_deployment_actor,
    get_deployment_actor_context,
    get_replica_context,
)
from skate.serve.deployment import Application, Deployment
from skate.serve.exceptions import RayServeException
from skate.serve.handle import DeploymentHandle, _note_held
from skate.serve.multiplex import get_multiplexed_model_id, multiplexed

__all__ = [
    "RunTarget",
    "address",
    "delete",
    "deployment",
    "get_app_handle",
    "get_deployment_actor",
    "get_deployment_actor_context",
    "get_deployment_handle",
    "get_multiplexed_model_id",
    "get_replica_context",
    "ingress",
    "multiplexed",
    "run",
    "run_many",
    "shutdown",
    "shutdown_async",
    "start",
    "status",
]

logger = logging.getLogger("skate.serve")

_UNSET: Any = DEFAULT.VALUE


def deployment(
    _func_or_class: Callable[..., Any] | None = None,
    name: str | DEFAULT = _UNSET,
    version: str | DEFAULT = _UNSET,
    num_replicas: int | str | DEFAULT | None = _UNSET,
    ray_actor_options: dict[str, Any] | DEFAULT = _UNSET,
    placement_group_bundles: list[dict[str, float]] | DEFAULT = _UNSET,
    placement_group_strategy: str | DEFAULT = _UNSET,
    placement_group_bundle_label_selector: list[dict[str, str]] | DEFAULT = _UNSET,
    max_replicas_per_node: int | DEFAULT = _UNSET,
    user_config: Any | DEFAULT | None = _UNSET,
    max_ongoing_requests: int | DEFAULT = _UNSET,
    max_queued_requests: int | DEFAULT = _UNSET,
    backpressure_config: Any | DEFAULT | None = _UNSET,
    autoscaling_config: Any | DEFAULT | None = _UNSET,
    graceful_shutdown_wait_loop_s: float | DEFAULT = _UNSET,
    graceful_shutdown_timeout_s: float | DEFAULT = _UNSET,
    health_check_period_s: float | DEFAULT = _UNSET,
    health_check_timeout_s: float | DEFAULT = _UNSET,
    logging_config: Any | DEFAULT | None = _UNSET,
    request_router_config: Any | DEFAULT | None = _UNSET,
    max_constructor_retry_count: int | DEFAULT = _UNSET,
    gang_scheduling_config: Any | DEFAULT | None = _UNSET,
    deployment_actors: list[Any] | DEFAULT | None = _UNSET,
    rolling_update_percentage: float | DEFAULT = _UNSET,
    max_surge_percent: int | DEFAULT = _UNSET,
) -> Any:
    """Turn a class or function into a deployment, which Serve can run with several replicas.

    Args:
        name: The name within its application; the name of the class or function if not given.
        version: Replicas are kept when it is deployed again under the same version, and replaced otherwise.
        num_replicas: The number of replicas; "auto" enables autoscaling.
        ray_actor_options: Resources and environment of each replica: `num_cpus`, `num_gpus`, `runtime_env`, …
        placement_group_bundles: Bundles of a placement group per replica, for replicas that start actors themselves.
        placement_group_strategy: The placement strategy of the group.
        placement_group_bundle_label_selector: Labels that the nodes of the bundles must have.
        max_replicas_per_node: The maximum number of replicas per node.
        user_config: The argument of `reconfigure`, which is called at the start and after each change; a change does
            not start new replicas.
        max_ongoing_requests: The maximum number of concurrent requests per replica; others wait at their callers.
        max_queued_requests: The maximum number of waiting requests per caller; more are rejected. -1 for no limit.
        backpressure_config: The response to rejected requests.
        autoscaling_config: How the number of replicas follows the load.
        graceful_shutdown_wait_loop_s: Has no effect: a replica stops as soon as its requests are answered.
        graceful_shutdown_timeout_s: The time limit for open requests of a stopping replica.
        health_check_period_s: The interval between calls of `check_health`.
        health_check_timeout_s: The time limit of `check_health`.
        logging_config: Options of the replicas' logging.
        request_router_config: The request router, which chooses replicas.
        max_constructor_retry_count: The number of failed starts after which the deployment fails.
        gang_scheduling_config: Gangs of replicas that start and stop together.
        deployment_actors: Actors that all replicas share.
        rolling_update_percentage: The fraction of replicas that an update replaces at a time.
        max_surge_percent: Has no effect: an update adds replicas as far as resources allow.

    Returns:
        A `Deployment`, or a decorator that returns one.

    Example:
        >>> from skate import serve
        >>> @serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
        ... class Doubler:
        ...     def __call__(self, number: int) -> int:
        ...         return 2 * number
        >>> serve.run(Doubler.bind()).remote(21).result()
        42
        >>> serve.shutdown()
    """
    options = {
        "version": version,
        "num_replicas": num_replicas,
        "ray_actor_options": ray_actor_options,
        "placement_group_bundles": placement_group_bundles,
        "placement_group_strategy": placement_group_strategy,
        "placement_group_bundle_label_selector": placement_group_bundle_label_selector,
        "max_replicas_per_node": max_replicas_per_node,
        "user_config": user_config,
        "max_ongoing_requests": max_ongoing_requests,
        "max_queued_requests": max_queued_requests,
        "backpressure_config": backpressure_config,
        "autoscaling_config": autoscaling_config,
        "graceful_shutdown_wait_loop_s": graceful_shutdown_wait_loop_s,
        "graceful_shutdown_timeout_s": graceful_shutdown_timeout_s,
        "health_check_period_s": health_check_period_s,
        "health_check_timeout_s": health_check_timeout_s,
        "logging_config": logging_config,
        "request_router_config": request_router_config,
        "max_constructor_retry_count": max_constructor_retry_count,
        "gang_scheduling_config": gang_scheduling_config,
        "deployment_actors": deployment_actors,
        "rolling_update_percentage": rolling_update_percentage,
        "max_surge_percent": max_surge_percent,
    }

    def decorate(target: Callable[..., Any]) -> Deployment[Any]:
        if not callable(target):
            raise TypeError(f"@serve.deployment must be used on a class or a function, not on {target!r}.")
        called: Any = getattr(target, "__name__", type(target).__name__) if name is _UNSET else name
        arguments.instance("name", called, str, "a string, the name of the deployment")
        check_code(target, called)
        return Deployment(target, DeploymentOptions(name=called).merged(options, "@serve.deployment"))

    return decorate if _func_or_class is None else decorate(_func_or_class)


def ingress(app: Any = None) -> Callable[..., type]:
    """Let an ASGI application answer the HTTP requests of a deployment's class.

    With FastAPI, routes may be methods of the class, whose `self` is the replica's instance. Several classes may
    share an application; each serves the routes that are its own methods or plain functions. `serve.ingress(app)()`
    returns a class without methods of its own.

    Args:
        app: A FastAPI, Starlette or other ASGI application, a FastAPI router, or a function without parameters that
            returns an application in the replica. Without it, the class's method `__serve_build_asgi_app__` returns the
            application after the constructor has run.

    Example:
        >>> from fastapi import FastAPI
        >>> from skate import serve
        >>> app = FastAPI()
        >>> @serve.deployment
        ... @serve.ingress(app)
        ... class Greeter:
        ...     @app.get("/greet")
        ...     def greet(self, name: str) -> str:
        ...         return f"Hello, {name}!"
    """

    def decorate(cls: type | None = None) -> type:
        return make_ingress(cls, app)

    return decorate


def start(
    proxy_location: Any = None,
    http_options: Any = None,
    grpc_options: Any = None,
    logging_config: Any = None,
    tracing_config: Any = None,
    controller_options: Any = None,
    **kwargs: Any,
) -> None:
    """Start Serve unless it runs. `serve.run` starts it with default options.

    Args:
        proxy_location: Where proxies run; `ProxyLocation.Disabled` accepts no external requests.
        http_options: `HTTPOptions`, or a dict of them: `{"host": "0.0.0.0", "port": 8080}`.
        grpc_options: `gRPCOptions`, or a dict of them.
        logging_config: Options of logging.
        tracing_config: Options of OpenTelemetry tracing.
        controller_options: `ControllerOptions`, or a dict of them: `{"runtime_env": {"env_vars": {…}}}`.
    """
    connect_or_start(
        proxy_location,
        http_options,
        grpc_options,
        logging_config=logging_config,
        tracing_config=tracing_config,
        controller_options=controller_options,
        **kwargs,
    )


@dataclass(frozen=True)
class RunTarget:
    """An application for `run_many`, with the arguments of `run`."""

    target: Application
    name: str = APP_NAME
    route_prefix: str | None = "/"
    logging_config: Any = None
    external_scaler_enabled: bool = False


def run(
    target: Application,
    blocking: bool = False,
    name: str = APP_NAME,
    route_prefix: str | None = "/",
    logging_config: Any = None,
    _local_testing_mode: bool = False,
    external_scaler_enabled: bool = False,
    controller_options: Any = None,
    host: str | None = None,
    port: int | None = None,
) -> DeploymentHandle[Any]:
    """Deploy an application, wait until it runs, and return a handle to its ingress deployment.

    An application of the same name is replaced: the old version serves until the new one does.

    Args:
        target: The result of `bind`.
        blocking: Whether to block until Ctrl-C afterwards.
        name: The name of the application.
        route_prefix: The prefix of its HTTP routes; None disables HTTP.
        logging_config: Options of its logging.
        external_scaler_enabled: Whether an external scaler may set the numbers of replicas.
        controller_options: `ControllerOptions`, or a dict of them: `{"runtime_env": {"env_vars": {…}}}`.
        host: The address to listen on if Serve does not run yet, for scripts written for older versions of Ray.
        port: As `host`.

    Raises:
        RuntimeError: If the application could not be deployed. A version that was running keeps running.
    """
    wanted = RunTarget(target, name, route_prefix, logging_config, external_scaler_enabled)
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    (handle,) = _deploy(
        [wanted],
        http_options=given or None,
        controller_options=controller_options,
        local=_local_testing_mode,
    )
    if blocking:
        _block()
    return handle


def run_many(
    targets: Sequence[RunTarget],
    blocking: bool = False,
    wait_for_ingress_deployment_creation: bool = True,
    wait_for_applications_running: bool = True,
    _local_testing_mode: bool = False,
    controller_options: Any = None,
) -> list[DeploymentHandle[Any]]:
    """Deploy several applications at once, and return a handle to each.

    Args:
        targets: The applications.
        blocking: Whether to block until Ctrl-C afterwards.
        wait_for_ingress_deployment_creation: Has no effect: handles can be used at once.
        wait_for_applications_running: Whether to wait until all applications run.
        controller_options: `ControllerOptions`, or a dict of them: `{"runtime_env": {"env_vars": {…}}}`.
    """
    handles = _deploy(
        targets,
        wait=wait_for_applications_running,
        controller_options=controller_options,
        local=_local_testing_mode,
    )
    if blocking:
        _block()
    return handles


def _run(
    target: Application,
    *,
    _blocking: bool = True,
    name: str = APP_NAME,
    route_prefix: str | None = "/",
    logging_config: Any = None,
    _local_testing_mode: bool = False,
    external_scaler_enabled: bool = False,
) -> DeploymentHandle[Any]:
    """Do the same as `run`; with `_blocking=False`, return before the application runs."""
    wanted = RunTarget(target, name, route_prefix, logging_config, external_scaler_enabled)
    return _deploy([wanted], wait=_blocking, local=_local_testing_mode)[0]


def _run_many(
    targets: Sequence[RunTarget],
    *,
    wait_for_ingress_deployment_creation: bool = True,
    wait_for_applications_running: bool = True,
    _local_testing_mode: bool = False,
) -> list[DeploymentHandle[Any]]:
    """Do the same as `run_many`."""
    return _deploy(targets, wait=wait_for_applications_running, local=_local_testing_mode)


def _deploy(
    targets: Sequence[RunTarget],
    *,
    wait: bool = True,
    http_options: Any = None,
    controller_options: Any = None,
    local: bool = False,
) -> list[DeploymentHandle[Any]]:
    if isinstance(targets, Sequence) and not targets:
        raise ValueError(f"No applications provided: `targets` is {targets!r}.")
    arguments.instance("targets", targets, (list, tuple), "a list of serve.RunTarget")
    for each in targets:
        if not isinstance(each, RunTarget):
            arguments.refuse("targets", "a list of serve.RunTarget", targets)
        if not isinstance(each.target, Application):
            raise TypeError(_not_an_application(each.target))
        _check_application_name(each.name)
        check_route_prefix(each.route_prefix)
        if each.logging_config is not None:
            from skate.serve.schema import LoggingConfig

            validation.validate_model("logging_config", LoggingConfig, each.logging_config)
    specs = [
        build(
            each.target,
            each.name,
            each.route_prefix,
            logging_config=each.logging_config,
            external_scaler_enabled=each.external_scaler_enabled,
        )
        for each in targets
    ]
    if local and not skate.is_initialized():
        skate.init(engine="inline")
    client = connect_or_begin(None, http_options, None, controller_options=controller_options)
    for spec in specs:
        prepare(DeploymentID(spec.ingress, spec.name))
    client.deploy(specs, wait=wait)
    return [DeploymentHandle(spec.ingress, spec.name) for spec in specs]


def _check_application_name(name: Any) -> None:
    arguments.instance("name", name, str, "a string, the name of the application")
    if not name:
        raise RayServeException("Application name must be a non-empty string: `name` is ''.")


def _not_an_application(target: Any) -> str:
    if isinstance(target, Deployment):
        return f"serve.run() takes an Application, and got a Deployment: pass {target.name}.bind()."
    return f"serve.run() takes an Application, made by .bind() of a deployment, not {target!r}."


def _block() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        logger.warning("Got KeyboardInterrupt, shutting down...")
        shutdown()


def delete(name: str, _blocking: bool = True) -> None:
    """Stop an application and all of its deployments.

    Args:
        name: The name of the application; ignored if it does not exist.
    """
    client = _require_client()
    _check_application_name(name)
    client.delete([name], wait=_blocking)


def status() -> ServeStatus:
    """Return the status of all applications and deployments."""
    client = connect()
    return ServeStatus() if client is None else client.status()


def shutdown() -> None:
    """Stop all applications and Serve itself; do nothing if Serve does not run."""
    client = connect()
    if client is not None:
        client.shutdown()
    disconnect()


async def shutdown_async() -> None:
    """Do the same as `shutdown`, without blocking the event loop."""
    await asyncio.get_running_loop().run_in_executor(None, shutdown)


def address() -> tuple[str, int]:
    """Return the host and port that serve HTTP, for example to find out an automatically chosen port.

    Raises:
        RayServeException: If Serve does not run, or HTTP is disabled.
    """
    found = _require_client().http_address()
    if found is None:
        raise RayServeException(
            "Serve was started with ProxyLocation.Disabled and does not accept HTTP requests."
        )
    return found


def get_app_handle(name: str) -> DeploymentHandle[Any]:
    """Return a handle to the ingress deployment of an application.

    Raises:
        RayServeException: If the application does not exist.
    """
    client = _require_client()
    _check_application_name(name)
    found = client.ingress_of(name)
    if found is None:
        raise RayServeException(
            f"Application '{name}' does not exist.{_hint(name, client.status().applications)}"
        )
    _note_held(DeploymentID(found, name))
    return DeploymentHandle(found, name)


def get_deployment_handle(
    deployment_name: str,
    app_name: str | None = None,
    _check_exists: bool = True,
    _record_telemetry: bool = True,
) -> DeploymentHandle[Any]:
    """Return a handle to a deployment.

    Args:
        deployment_name: The deployment, by name.
        app_name: Its application; the application of the calling replica if not given.

    Raises:
        RayServeException: If the deployment does not exist, or `app_name` is not given outside of an application.
    """
    client = _require_client()
    arguments.text("deployment_name", deployment_name, "the name of a deployment")
    arguments.text("app_name", app_name, "the name of an application", optional=True)
    if app_name is None:
        here = _get_replica()
        if here is None:
            raise RayServeException(
                f"Outside of an application, the name {deployment_name!r} alone does not identify a deployment: pass "
                "app_name=... as well."
            )
        app_name = here.app_name
    if _check_exists and deployment_name not in (known := client.deployments_of(app_name) or ()):
        raise RayServeException(
            f"Deployment(name='{deployment_name}', app='{app_name}') does not exist."
            + (_hint(deployment_name, known) if known else _hint(app_name, client.status().applications))
        )
    _note_held(DeploymentID(deployment_name, app_name))
    return DeploymentHandle(deployment_name, app_name)


def _hint(name: str, known: Collection[str]) -> str:
    return f" {arguments.hint_for_unknown(name, known)}" if known else ""


def _require_client() -> Client:
    client = connect()
    if client is None:
        raise RayServeException("There is no Serve instance running: call serve.run or serve.start first.")
    return client
