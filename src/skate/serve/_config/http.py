"""Options of the HTTP and gRPC listeners, and of the controller."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from skate.air import _arguments as arguments
from skate.serve._config import defaults, import_paths
from skate.serve._config.defaults import ProxyLocation
from skate.serve._config.model import ServeModel

Port = Annotated[int, Field(ge=0, le=65535)]


class TLS(ServeModel):
    """Key and certificate files for TLS, which must be given together."""

    ssl_keyfile: str | None = Field(default=None, description="The server's private key, as a PEM file.")
    ssl_certfile: str | None = Field(default=None, description="The server's certificate, as a PEM file.")
    ssl_keyfile_password: str | None = Field(default=None, description="The password of the key.", repr=False)
    ssl_ca_certs: str | None = Field(default=None, description="CA certificates to verify clients with.")

    @model_validator(mode="after")
    def _key_and_certificate(self) -> Self:
        if bool(self.ssl_keyfile) != bool(self.ssl_certfile):
            given, missing = (
                ("ssl_keyfile", "ssl_certfile") if self.ssl_keyfile else ("ssl_certfile", "ssl_keyfile")
            )
            raise ValueError(
                f"Both ssl_keyfile and ssl_certfile must be provided together, but only {given} is set: set {missing} "
                "too, or neither for plain HTTP."
            )
        return self


class HTTPLimits(TLS):
    """Limits on HTTP clients, which Ray does not have. If not given, environment variables or defaults apply."""

    max_header_bytes: PositiveInt | None = Field(
        default=None, description="The maximum size of a request's head; larger ones get status 431."
    )
    max_body_bytes: PositiveInt | None = Field(
        default=None, description="The maximum size of a request's body; larger ones get status 413."
    )
    max_connections: PositiveInt | None = Field(
        default=None, description="The maximum number of open connections; further ones get status 503."
    )
    header_timeout_s: PositiveFloat | None = Field(
        default=None, description="The time limit for receiving the head of a request, in seconds."
    )
    body_timeout_s: PositiveFloat | None = Field(
        default=None, description="The time limit between two parts of a body, in seconds."
    )
    allowed_hosts: list[str] | None = Field(
        default=None,
        description="Host names that clients may use: a name, '*.example.com', or '*'; any other gets status 421. By "
        "default, a server on the loopback interface accepts localhost, this machine's name and IP addresses, and any "
        "other server accepts every name.",
    )


class HTTPOptions(HTTPLimits):
    """Options of the HTTP listener.

    >>> from skate.serve.config import HTTPOptions
    >>> HTTPOptions(port=8080).host
    '127.0.0.1'
    """

    model_config = ConfigDict(validate_assignment=True, arbitrary_types_allowed=True)

    host: str | None = Field(
        default=defaults.HTTP_HOST,
        description="Address to listen on; '0.0.0.0' accepts other machines, None disables HTTP.",
    )
    port: Port = Field(default=defaults.HTTP_PORT, description="Port to listen on; 0 chooses a free one.")
    middlewares: list[Any] = Field(default=[], description="Removed: must be empty.")
    location: ProxyLocation | None = Field(default=None, description="Deprecated: use `proxy_location`.")
    num_cpus: int = Field(default=0, description="Removed: must be 0.")
    root_url: str = Field(default="", description="The external URL of the root of all applications.")
    root_path: str = Field(default="", description="The path under which a proxy in front mounts Serve.")
    request_timeout_s: NonNegativeFloat | None = Field(
        default=None, description="When a request is given up, in seconds."
    )
    keep_alive_timeout_s: NonNegativeInt = Field(
        default=defaults.KEEP_ALIVE_TIMEOUT_S,
        description="How long an idle connection stays open, in seconds.",
    )

    @field_validator("middlewares")
    @classmethod
    def _no_middlewares(cls, value: list[Any]) -> list[Any]:
        if value:
            raise ValueError(
                "`middlewares` in HTTPOptions has been removed. Add them to the FastAPI or Starlette application that "
                "`@serve.ingress` wraps."
            )
        return value

    @field_validator("num_cpus")
    @classmethod
    def _no_cpus(cls, value: int) -> int:
        if value:
            raise ValueError(
                "`num_cpus` in HTTPOptions has been removed: the proxy reserves no CPU. Leave it out."
            )
        return value

    @field_validator("location", mode="before")
    @classmethod
    def _older_word(cls, value: Any) -> ProxyLocation | None:
        with arguments.naming("location"):
            found = ProxyLocation._normalize(value)
        if found is not None:
            warnings.warn(
                "`location` in HTTPOptions is deprecated. Pass `proxy_location` to `serve.start`, or set it at the "
                "top of a configuration file.",
                DeprecationWarning,
                stacklevel=2,
            )
        return found

    @model_validator(mode="after")
    def _no_host_is_no_proxy(self) -> HTTPOptions:
        if self.host is None:
            # Not by assignment, which would validate again and warn of an option that the user did not set.
            self.__dict__["location"] = ProxyLocation.Disabled
        return self


class GrpcFields(TLS):
    """Options of the gRPC listener, common to programs and configuration files."""

    port: Port = Field(default=defaults.GRPC_PORT, description="Port to listen on.")
    grpc_servicer_functions: list[str] = Field(
        default=[], description="Import paths of generated functions `add_…Servicer_to_server`."
    )
    request_timeout_s: PositiveFloat | None = Field(
        default=None, description="When a call is given up, in seconds."
    )
    enable_reflection: bool = Field(
        default=True, description="Whether clients may list the services (server reflection)."
    )


class gRPCOptions(GrpcFields):  # noqa: N801 - the name is Ray's
    """Options of the gRPC listener, which is enabled by servicer functions. Ray does not have the TLS options."""

    @property
    def grpc_servicer_func_callable(self) -> list[Callable[..., Any]]:
        """The imported functions that add the services."""
        return [_servicer_function(path) for path in self.grpc_servicer_functions]


def _servicer_function(path: str) -> Callable[..., Any]:
    try:
        function = import_paths.load(path)
    except (ImportError, AttributeError) as error:
        raise ModuleNotFoundError(
            f"{path} can't be imported! grpc_servicer_functions are import paths such as "
            f"'user_pb2_grpc.add_UserServiceServicer_to_server': {error}"
        ) from error
    if not callable(function):
        raise ValueError(f"{path} is not a callable function! It is {function!r}.")
    return function  # type: ignore[no-any-return]  # callable() does not narrow Any


class HTTPOptionsSchema(HTTPLimits):
    """Options of the HTTP listener in a file. Unlike in Ray, the default `host` accepts local clients only."""

    host: str = Field(
        default=defaults.HTTP_HOST, description="Address to listen on; '0.0.0.0' accepts other machines."
    )
    port: Port = Field(default=defaults.HTTP_PORT, description="Port to listen on.")
    root_path: str = Field(default="", description="The path under which a proxy in front mounts Serve.")
    request_timeout_s: NonNegativeFloat | None = Field(
        default=None, description="When a request is given up, in seconds."
    )
    keep_alive_timeout_s: NonNegativeInt = Field(
        default=defaults.KEEP_ALIVE_TIMEOUT_S,
        description="How long an idle connection stays open, in seconds.",
    )


class gRPCOptionsSchema(GrpcFields):  # noqa: N801 - the name is Ray's
    """Options of the gRPC listener in a file."""


class ControllerOptions(ServeModel):
    """Options of the controller: environment variables only."""

    model_config = ConfigDict(extra="forbid")

    runtime_env: dict[str, Any] | None = Field(default=None, description='`{"env_vars": {name: value}}`.')

    @field_validator("runtime_env")
    @classmethod
    def _environment_variables_only(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        if others := sorted(set(value) - {"env_vars"}):
            raise ValueError(
                f"ControllerOptions.runtime_env only supports ['env_vars'], got {others}. What replicas need belongs "
                "to the deployment: ray_actor_options={'runtime_env': ...}."
            )
        if "env_vars" in value:
            _check_variables(value["env_vars"])
        return value


def _check_variables(variables: Any) -> None:
    if not isinstance(variables, dict):
        raise ValueError(f"runtime_env.env_vars must be a dict of strings, got {type(variables).__name__}.")
    for name, value in variables.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"A name in env_vars must be a non-empty str, got {name!r}.")
        if not isinstance(value, str):
            raise ValueError(
                f"env_vars[{name!r}] must be str, got {type(value).__name__}: write {str(value)!r}."
            )
