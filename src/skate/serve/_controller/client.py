"""Talking to the controller from a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import skate
from skate.air import _arguments as arguments
from skate.exceptions import ActorDiedError, RayActorError
from skate.serve._build.spec import ApplicationSpec
from skate.serve._config import defaults, numbers, removed
from skate.serve._controller.actor import Controller
from skate.serve._ids import CONTROLLER_NAME, NAMESPACE
from skate.serve._observability import hooks
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._process import actor_class, make_ready, surroundings, surroundings_of_proxy
from skate.serve._router.runtime import close_runtime
from skate.serve._schema.statuses import ServeStatus

if TYPE_CHECKING:
    from skate.serve._schema.application import ServeDeploySchema
    from skate.serve._schema.details import ServeInstanceDetails
    from skate.serve._schema.health import ControllerHealthMetrics

__all__ = ["Client", "connect", "connect_or_begin", "connect_or_start", "forget"]

_STARTING = ("proxy_location", "http_options", "grpc_options", "logging_config", "tracing_config")
_THREADS = 256  # calls of the controller that wait at the same time


class Client:
    """The controller's methods, as plain functions.

    Args:
        actor: The controller.
        opening: The start of the proxy, where that is under way: what is to be deployed need not wait for it.
    """

    def __init__(self, actor: Any, opening: Any = None) -> None:
        self.actor = actor
        self._opening = opening

    def wait_for_proxy(self) -> None:
        """Wait until Serve can be asked from outside; if it cannot, it is shut down, and the reason is raised."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        try:
            skate.get(opening)
        except Exception:
            self.shutdown()
            raise

    def deploy(self, specs: list[ApplicationSpec], *, wait: bool) -> None:
        """Deploy applications.

        Raises:
            RuntimeError: If one of them could not be deployed.
        """
        deploying = self.actor.deploy.remote(specs)
        self.wait_for_proxy()
        skate.get(deploying)
        if wait:
            self._wait([spec.name for spec in specs])

    def deploy_config(
        self, file: ServeDeploySchema, *, folder: str | None = None, wait: bool = False
    ) -> None:
        """Have the applications of a configuration file in place of those of the file before it.

        Applications that a program deployed are left alone. Those of the file are built by processes of their own: what
        goes wrong is told by their status.

        Args:
            file: What it says.
            folder: Where modules are looked for that are not installed.
            wait: Whether to wait until all of them run.

        Raises:
            RuntimeError: If one of them could not be deployed, and that was waited for.
        """
        skate.get(self.actor.declare.remote(file.model_dump(exclude_unset=True), folder))
        if wait:
            self._wait([app.name for app in file.applications])

    def wait(self, name: str) -> str | None:
        """Wait until an application runs; return what went wrong, or None."""
        problem: str | None = skate.get(self.actor.wait_until_running.remote(name))
        return problem

    def _wait(self, names: list[str]) -> None:
        for name in names:
            problem = self.wait(name)
            if problem is not None:
                raise RuntimeError(f"Deploying application {name} failed: {problem}")

    def configs(self) -> dict[str, dict[str, Any]]:
        """Return what files say about the applications that they declare."""
        found: dict[str, dict[str, Any]] = skate.get(self.actor.configs.remote())
        return found

    def details(self) -> ServeInstanceDetails:
        """Return how everything stands, in full."""
        from skate.serve._schema.details import ServeInstanceDetails

        return ServeInstanceDetails.model_validate(skate.get(self.actor.details.remote()))

    def scale(self, app: str, deployment: str, replicas: int) -> None:
        """Give a deployment a number of replicas.

        Raises:
            ExternalScalerDisabledError: The application does not allow it: see `serve.run(external_scaler_enabled=…)`.
            ValueError: There is no such deployment, or it is no number of replicas.
        """
        skate.get(self.actor.scale.remote(app, deployment, replicas))

    def delete(self, names: list[str], *, wait: bool) -> None:
        """Stop applications."""
        skate.get(self.actor.delete.remote(names, wait))

    def status(self) -> ServeStatus:
        """Return how everything stands."""
        found: ServeStatus = skate.get(self.actor.status.remote())
        return found

    def health(self) -> ControllerHealthMetrics:
        """Return how the controller itself is doing."""
        from skate.serve._schema.health import ControllerHealthMetrics

        return ControllerHealthMetrics.model_validate(skate.get(self.actor.get_health_metrics.remote()))

    def ingress_of(self, app: str) -> str | None:
        """Return the name of an application's ingress deployment."""
        found: str | None = skate.get(self.actor.ingress_of.remote(app))
        return found

    def deployments_of(self, app: str) -> list[str] | None:
        """Return the names of an application's deployments."""
        found: list[str] | None = skate.get(self.actor.deployments_of.remote(app))
        return found

    def http_address(self) -> tuple[str, int] | None:
        """Return host and port that HTTP is served on; None where it is not."""
        found: dict[str, Any] | None = skate.get(self.actor.start_proxy.remote())
        return None if found is None else tuple(found["http"])

    def grpc_address(self) -> tuple[str, int] | None:
        """Return host and port that gRPC is served on; None where it is not."""
        found: dict[str, Any] = skate.get(self.actor.start_proxy.remote()) or {}
        return tuple(found["grpc"]) if "grpc" in found else None

    def wait_for_shutdown(self) -> None:
        """Return when somebody has shut Serve down."""
        try:
            skate.get(self.actor.until_shutdown.remote())
        except RayActorError:
            return

    def shutdown(self) -> None:
        """Stop all of Serve."""
        try:
            skate.get(self.actor.shutdown.remote())
        except ActorDiedError:
            return  # somebody else has shut it down in the meantime: nothing else ends it for good
        skate.kill(self.actor)


def connect() -> Client | None:
    """Return the client of Serve, or None if it does not run."""
    if not skate.is_initialized():
        return None
    try:
        return Client(skate.get_actor(CONTROLLER_NAME, NAMESPACE))
    except ValueError:
        return None


def connect_or_start(*args: Any, **kwargs: Any) -> Client:
    """Return the client of Serve, which is started if it does not run; takes what `connect_or_begin` does."""
    client = connect_or_begin(*args, **kwargs)
    client.wait_for_proxy()
    return client


def connect_or_begin(
    proxy_location: Any,
    http_options: Any,
    grpc_options: Any,
    *,
    logging_config: Any = None,
    tracing_config: Any = None,
    controller_options: Any = None,
    **kwargs: Any,
) -> Client:
    """Return the client of Serve; if it did not run, its proxy is still starting: see `Client.wait_for_proxy`."""
    environment = _controller_environment(controller_options)
    watch = ObservabilityOptions.of(logging_config, tracing_config)
    if watch.tracing is not None:
        from skate.serve._observability.tracing import use_program_provider

        use_program_provider()
    if not skate.is_initialized():
        skate.init()
    client = connect()
    if client is not None:
        _http_options(proxy_location, http_options, kwargs)  # a wrong option is an error although Serve runs
        _grpc_options(grpc_options)
        return client
    surrounded = surroundings(environment)
    make_ready(surrounded, surroundings_of_proxy())
    # After make_ready: replicas start with the libraries that the program has imported by then, and the checks of these
    # options import pydantic.
    http, grpc = _http_options(proxy_location, http_options, kwargs), _grpc_options(grpc_options)
    made = actor_class(Controller, "ServeController").options(
        name=CONTROLLER_NAME,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        runtime_env=surrounded,
        max_concurrency=_THREADS,
        max_restarts=-1,
        max_task_retries=-1,  # what it is asked while it is restarted is answered afterwards
    )
    controller = made.remote(http, grpc, watch)
    return Client(controller, controller.start_proxy.remote())


def forget() -> None:
    """Close this process's connections to Serve."""
    hooks.start_route_span = None
    close_runtime()


def _http_options(location: Any, options: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return where to listen; None for nowhere."""
    if location is None and options is None and not kwargs:
        return {
            "host": defaults.HTTP_HOST,
            "port": defaults.HTTP_PORT,
            "keep_alive_timeout_s": defaults.KEEP_ALIVE_TIMEOUT_S,
        }
    from skate.serve.config import HTTPOptions, ProxyLocation

    given = numbers.model("http_options", HTTPOptions, options)
    removed.refuse_unknown(kwargs, {*HTTPOptions.model_fields, *_STARTING}, "serve.start()")
    if given is None or kwargs:
        given = HTTPOptions.model_validate({**({} if given is None else given.model_dump()), **kwargs})
    checked: HTTPOptions = given
    with arguments.naming("proxy_location"):
        where = ProxyLocation._normalize(location) if location is not None else checked.location
    if where is ProxyLocation.Disabled:
        return None
    found = checked.model_dump(exclude={"location", "middlewares"})
    return {**found, "host": found["host"] or defaults.HTTP_HOST}


def _controller_environment(options: Any) -> dict[str, Any] | None:
    """Return the runtime environment that the controller is to have, besides its own."""
    if options is None:
        return None
    from skate.serve.config import ControllerOptions

    environment: dict[str, Any] | None = numbers.model(
        "controller_options", ControllerOptions, options
    ).runtime_env
    return environment


def _grpc_options(options: Any) -> dict[str, Any] | None:
    """Return how gRPC is taken; None where there is no service to take it for."""
    if options is None:
        return None
    from skate.serve.config import gRPCOptions

    checked = numbers.model("grpc_options", gRPCOptions, options)
    return checked.model_dump() if checked.grpc_servicer_functions else None
