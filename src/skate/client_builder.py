"""`skate.client(...)`: the older way to start a session."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any, Self

import skate
from skate._base import variables
from skate._base.lazy_names import lazy_names

__all__ = ["ClientBuilder", "ClientContext", "client"]

if TYPE_CHECKING:
    from skate._api.session import init as ray_driver_init  # noqa: F401  # Ray's name
    from skate._base.logging_config import LoggingConfig as LoggingConfig
    from skate.job_config import JobConfig as JobConfig
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "JobConfig": "skate.job_config.JobConfig",
            "LoggingConfig": "skate._base.logging_config.LoggingConfig",
            "ray_driver_init": "skate._api.session.init",
        },
    )


class ClientContext:
    """The result of `connect`: properties of the session, and a context manager that ends it.

    Args:
        session: The result of `skate.init`.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self.dashboard_url: str | None = session.dashboard_url
        self.python_version: str = session.python_version
        self.ray_version: str = session.ray_version
        self.ray_commit: str = session.ray_commit

    def disconnect(self) -> None:
        """End the session; a second call does nothing."""
        session, self._session = self._session, None
        if session is not None:
            session.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        return f"ClientContext(ray_version={self.ray_version!r}, connected={self._session is not None})"


class ClientBuilder:
    """Collects the settings of a session; `connect` starts it.

    Args:
        address: Host and port of a Ray cluster; None or "local" is this machine.

    Examples:
        >>> import skate
        >>> with skate.client("local").namespace("tests").connect():
        ...     skate.get_runtime_context().namespace
        'tests'
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._namespace: str | None = None
        self._runtime_env: dict[str, Any] | None = None

    def env(self, env: dict[str, Any]) -> Self:
        """Set the runtime environment of the session."""
        self._runtime_env = env
        return self

    def namespace(self, namespace: str) -> Self:
        """Set the namespace of named actors."""
        self._namespace = namespace
        return self

    def connect(self) -> ClientContext:
        """Start the session.

        Raises:
            ImportError: The address is that of a Ray cluster, and Ray is not installed.
        """
        _warn(self._replacement(), stacklevel=3)
        namespace = self._namespace or variables.text("NAMESPACE")
        return ClientContext(
            skate.init(self._init_address(), namespace=namespace, runtime_env=self._runtime_env)
        )

    def _init_address(self) -> str | None:
        return f"ray://{self.address}"

    def _replacement(self) -> str:
        address = self._init_address()
        arguments = [f'"{address}"'] if address else []
        if self._namespace is not None:
            arguments.append(f'namespace="{self._namespace}"')
        if self._runtime_env is not None:
            arguments.append("runtime_env=<your_runtime_env>")
        return f"ray.init({', '.join(arguments)})"


class _LocalClientBuilder(ClientBuilder):
    """Starts a session on this machine."""

    def _init_address(self) -> str | None:
        return self.address


def client(address: str | None = None, _deprecation_warn_enabled: bool = True) -> ClientBuilder:
    """Return a builder for a session; `skate.init` does the same in one call.

    Args:
        address: None or "local" for this machine, "ray://host:port" or "host:port" for a Ray cluster, and
            "module://anything" for a module with its own `ClientBuilder`.

    Raises:
        ValueError: The address is an HTTP address.
        RuntimeError: The module in the address does not exist or has no `ClientBuilder`.
    """
    if address is None:
        address = variables.text("ADDRESS")
    if address in (None, "local"):
        return _LocalClientBuilder(address)
    module, inner = _split_address(address)
    if module in ("http", "https"):
        raise ValueError(
            f"The address {address!r} is of a dashboard or job server. RAY_ADDRESS and `address` take a GCS "
            "address (host:port), ray://host:port or 'local'. For jobs use skate.job_submission."
        )
    if module == "ray":
        return ClientBuilder(inner)
    return _builder_of_module(module, inner, address)


def _split_address(address: str) -> tuple[str, str]:
    """Return the module that an address names, "ray" if none, and the rest."""
    module, separator, inner = address.partition("://")
    return (module, inner) if separator else ("ray", address)


def _builder_of_module(module: str, inner: str, address: str) -> ClientBuilder:
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise RuntimeError(
            f"The address {address!r} names the module {module!r} before '://', which does not exist."
        ) from None
    builder = getattr(imported, "ClientBuilder", None)
    if not isinstance(builder, type):
        raise RuntimeError(
            f"The address {address!r} names the module {module!r} before '://', which has no class ClientBuilder."
        )
    made: ClientBuilder = builder(inner)
    return made


def _warn(replacement: str, stacklevel: int) -> None:
    warnings.warn(
        "Starting a connection through `ray.client` will be deprecated. Write this instead:\n"
        f"      {replacement}",
        DeprecationWarning,
        stacklevel=stacklevel,
    )
