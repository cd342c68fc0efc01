"""The client that programs use to talk to the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import skate
from skate.air import _arguments as arguments
from skate.exceptions import ActorDiedError, RayActorError
from skate.serve._build.spec import ApplicationSpec
from skate.serve._config import defaults, validation
from skate.serve._controller.actor import Controller
from skate.serve._observability import hooks
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._router.runtime import close_runtime
from skate.serve._runtime.engine import actor_class, actor_runtime_env, prestart_workers, proxy_runtime_env
from skate.serve._runtime.ids import CONTROLLER_NAME, NAMESPACE
from skate.serve._schema.statuses import ServeStatus

if TYPE_CHECKING:
    from skate.serve._schema.config_file import ServeDeploySchema
    from skate.serve._schema.details import ControllerHealthMetrics, ServeInstanceDetails

__all__ = ["Client", "connect", "connect_for_config", "connect_or_begin", "connect_or_start", "disconnect"]

_START_OPTIONS = ("proxy_location", "http_options", "grpc_options", "logging_config", "tracing_config")
_MAX_CONCURRENT_CALLS = 256  # bounds the controller's concurrent blocking calls


class Client:
    """The controller's methods as blocking functions.

    Args:
        actor: The controller.
        opening: The pending start of the proxy, if it is under way; deployments need not wait for it.
    """

    def __init__(self, actor: Any, opening: Any = None) -> None:
        self.actor = actor
        self._opening = opening

    def wait_for_proxy(self) -> None:
        """Wait until the proxy accepts requests. If it fails to start, shut Serve down and raise the error."""
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
            RuntimeError: If an application could not be deployed.
        """
        deploying = self.actor.deploy.remote(specs)
        self.wait_for_proxy()
        skate.get(deploying)
        if wait:
            self._wait([spec.name for spec in specs])

    def deploy_config(
        self, file: ServeDeploySchema, *, folder: str | None = None, wait: bool = False
    ) -> None:
        """Deploy the applications of a configuration file, replacing those of the previous file.

        Applications that programs deployed stay untouched. Separate processes build the applications; their statuses
        report errors.

        Args:
            file: The parsed file.
            folder: A folder to import modules from that are not installed.
            wait: Whether to wait until all applications run.

        Raises:
            RuntimeError: If `wait` is true and an application could not be deployed.
        """
        skate.get(self.actor.declare.remote(file.model_dump(exclude_unset=True), folder))
        if wait:
            self._wait([app.name for app in file.applications])

    def wait(self, name: str) -> str | None:
        """Wait until an application runs; return an error message, or None on success."""
        problem: str | None = skate.get(self.actor.wait_until_running.remote(name))
        return problem

    def _wait(self, names: list[str]) -> None:
        for name in names:
            problem = self.wait(name)
            if problem is not None:
                raise RuntimeError(f"Deploying application {name} failed: {problem}")

    def configs(self) -> dict[str, dict[str, Any]]:
        """Return the configurations of the applications that a file declares, by application name."""
        found: dict[str, dict[str, Any]] = skate.get(self.actor.configs.remote())
        return found

    def details(self) -> ServeInstanceDetails:
        """Return the full state of Serve."""
        from skate.serve._schema.details import ServeInstanceDetails

        return ServeInstanceDetails.model_validate(skate.get(self.actor.details.remote()))

    def scale(self, app: str, deployment: str, replicas: int) -> None:
        """Set the number of replicas of a deployment.

        Raises:
            ExternalScalerDisabledError: If the application does not set `external_scaler_enabled`.
            ValueError: If the deployment does not exist or the number is invalid.
        """
        skate.get(self.actor.scale.remote(app, deployment, replicas))

    def delete(self, names: list[str], *, wait: bool) -> None:
        """Delete applications."""
        skate.get(self.actor.delete.remote(names, wait))

    def status(self) -> ServeStatus:
        """Return the status of proxies and applications."""
        found: ServeStatus = skate.get(self.actor.status.remote())
        return found

    def health(self) -> ControllerHealthMetrics:
        """Return metrics of the controller itself."""
        from skate.serve._schema.details import ControllerHealthMetrics

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
        """Return the host and port that serve HTTP, or None if HTTP is disabled."""
        found: dict[str, Any] | None = skate.get(self.actor.start_proxy.remote())
        return None if found is None else tuple(found["http"])

    def grpc_address(self) -> tuple[str, int] | None:
        """Return the host and port that serve gRPC, or None if gRPC is disabled."""
        found: dict[str, Any] = skate.get(self.actor.start_proxy.remote()) or {}
        return tuple(found["grpc"]) if "grpc" in found else None

    def wait_for_shutdown(self) -> None:
        """Block until Serve has shut down."""
        try:
            skate.get(self.actor.wait_for_shutdown.remote())
        except RayActorError:
            return

    def shutdown(self) -> None:
        """Stop Serve and everything it runs."""
        try:
            skate.get(self.actor.shutdown.remote())
        except ActorDiedError:
            return  # another client shut Serve down in the meantime
        skate.kill(self.actor)


def connect() -> Client | None:
    """Return the client of Serve, or None if Serve does not run."""
    if not skate.is_initialized():
        return None
    try:
        return Client(skate.get_actor(CONTROLLER_NAME, NAMESPACE))
    except ValueError:
        return None


def connect_or_start(*args: Any, **kwargs: Any) -> Client:
    """Return the client of Serve, starting Serve if necessary; takes the arguments of `connect_or_begin`."""
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
    """Return the client of Serve, starting Serve if necessary.

    The proxy of a newly started Serve may still be starting: see `Client.wait_for_proxy`.
    """
    environment = _controller_environment(controller_options)
    watch = ObservabilityOptions.of(logging_config, tracing_config)
    if watch.tracing is not None:
        from skate.serve._observability.tracing import use_program_provider

        use_program_provider()
    if not skate.is_initialized():
        skate.init()
    client = connect()
    if client is not None:
        _http_options(proxy_location, http_options, kwargs)  # validates the options even if Serve runs
        _grpc_options(grpc_options)
        return client
    runtime_env = actor_runtime_env(environment)
    prestart_workers(runtime_env, proxy_runtime_env())
    # After prestart_workers, because validation imports pydantic, and replicas preload the libraries that the program
    # has imported by then.
    http, grpc = _http_options(proxy_location, http_options, kwargs), _grpc_options(grpc_options)
    controller_class = actor_class(Controller, "ServeController").options(
        name=CONTROLLER_NAME,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        runtime_env=runtime_env,
        max_concurrency=_MAX_CONCURRENT_CALLS,
        max_restarts=-1,
        max_task_retries=-1,  # calls during a restart wait for the new process
    )
    controller = controller_class.remote(http, grpc, watch)
    return Client(controller, controller.start_proxy.remote())


def connect_for_config(
    file: ServeDeploySchema, http: dict[str, Any] | None = None
) -> tuple[Client, list[str]]:
    """Return the client of Serve, started with the options of a configuration file if necessary.

    Args:
        file: The configuration.
        http: HTTP options that override those of the configuration.

    Returns:
        The client, and the names of the HTTP options that differ from those of Serve, which was running before.
    """
    was_running = connect() is not None
    given = file.model_fields_set
    of_file = file.http_options.model_dump(exclude_unset=True) if "http_options" in given else {}
    wanted = {**of_file, **(http or {})}
    client = connect_or_start(
        file.proxy_location if "proxy_location" in given else None,
        wanted or None,
        file.grpc_options.model_dump(exclude_unset=True) if "grpc_options" in given else None,
        logging_config=file.logging_config,
        tracing_config=file.tracing_config,
    )
    if not was_running or not wanted:
        return client, []
    here = client.details().http_options
    found = {} if here is None else here.model_dump()
    return client, sorted(name for name, value in wanted.items() if found.get(name) != value)


def disconnect() -> None:
    """Close this process's connections to Serve."""
    hooks.start_route_span = None
    close_runtime()


def _http_options(location: Any, options: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options of the HTTP listener, or None to disable it."""
    if location is None and options is None and not kwargs:
        return {
            "host": defaults.HTTP_HOST,
            "port": defaults.HTTP_PORT,
            "keep_alive_timeout_s": defaults.KEEP_ALIVE_TIMEOUT_S,
        }
    from skate.serve.config import HTTPOptions, ProxyLocation

    given = validation.validate_model("http_options", HTTPOptions, options)
    validation.reject_unknown_options(kwargs, {*HTTPOptions.model_fields, *_START_OPTIONS}, "serve.start()")
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
    """Return the runtime environment that the user gives the controller."""
    if options is None:
        return None
    from skate.serve.config import ControllerOptions

    environment: dict[str, Any] | None = validation.validate_model(
        "controller_options", ControllerOptions, options
    ).runtime_env
    return environment


def _grpc_options(options: Any) -> dict[str, Any] | None:
    """Return the options of the gRPC listener, or None if no service is configured."""
    if options is None:
        return None
    from skate.serve.config import gRPCOptions

    checked = validation.validate_model("grpc_options", gRPCOptions, options)
    return checked.model_dump() if checked.grpc_servicer_functions else None
