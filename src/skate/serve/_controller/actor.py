"""The controller actor and the methods that programs call on it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from skate.serve._build.spec import ApplicationSpec
from skate.serve._observability.observers import ProcessObserver
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._runtime.engine import stop_with_session
from skate.serve._runtime.loop import ServeLoop
from skate.serve._schema.statuses import ServeStatus

if TYPE_CHECKING:
    from skate.serve._controller.state import ControllerState
    from skate.serve._wire import Address

__all__ = ["Controller"]


class Controller:
    """Reconciles applications with their specifications. A restarted controller recovers the state of its predecessor.

    The methods block in threads of the actor and do their work on one event loop. None of them is a coroutine function:
    a single one would make the actor run all methods on one thread.
    """

    def __init__(
        self,
        http_options: dict[str, Any] | None,
        grpc_options: dict[str, Any] | None,
        watch: ObservabilityOptions | None = None,
    ) -> None:
        # Imported here because the program that starts Serve imports this module and does not need the state.
        from skate.serve._controller.state import ControllerState

        self._watch = ProcessObserver("controller", watch or ObservabilityOptions())
        self._loop = ServeLoop("skate-serve-controller")
        self._has_shut_down = threading.Event()
        self._shutdown_lock = threading.Lock()
        stop_with_session(self._loop)
        self._state: ControllerState = ControllerState(http_options, grpc_options)
        self._address: Address = self._loop.wait(self._state.open())

    def address(self) -> Address:
        """Return the address that the controller listens on."""
        return self._address

    def start_proxy(self) -> dict[str, Any] | None:
        """Start the proxy unless it runs; return its addresses, or None if the proxy is disabled."""
        return self._loop.wait(self._state.proxy.start())

    def deploy(self, specs: list[ApplicationSpec]) -> None:
        """Deploy applications, replacing those with the same names."""
        self._loop.wait(self._state.deploy(specs))

    def declare(self, file: dict[str, Any], folder: str | None) -> None:
        """Deploy the applications of a configuration file, replacing those of the previous file."""
        self._loop.wait(self._state.declare(file, folder))

    def configs(self) -> dict[str, dict[str, Any]]:
        """Return the configurations of the applications that a file declares, by application name."""
        return self._loop.wait(self._state.configs())

    def details(self) -> dict[str, Any]:
        """Return the full state of Serve as the fields of `ServeInstanceDetails`."""
        return self._loop.wait(self._state.details())

    def wait_until_running(self, name: str) -> str | None:
        """Wait until an application runs; return an error message, or None on success."""
        return self._loop.wait(self._state.wait_until_running(name))

    def scale(self, app: str, deployment: str, replicas: int) -> None:
        """Set the number of replicas of a deployment whose application enables external scaling."""
        self._loop.wait(self._state.scale(app, deployment, replicas))

    def get_external_scaler_enabled(self, app: str) -> bool:
        """Return whether an application allows external scaling of its deployments."""
        return self._loop.wait(self._state.is_externally_scaled(app))

    def delete(self, names: list[str], wait: bool) -> None:
        """Delete applications."""
        self._loop.wait(self._state.delete(names, wait))

    def status(self) -> ServeStatus:
        """Return the status of proxies and applications."""
        return self._loop.wait(self._state.status())

    def ingress_of(self, app: str) -> str | None:
        """Return the name of an application's ingress deployment, or None if the application does not exist."""
        return self._loop.wait(self._state.ingress_of(app))

    def deployments_of(self, app: str) -> list[str] | None:
        """Return the names of an application's deployments, or None if the application does not exist."""
        return self._loop.wait(self._state.deployments_of(app))

    def get_health_metrics(self) -> dict[str, Any]:
        """Return metrics of the controller itself as the fields of `ControllerHealthMetrics`."""
        return self._loop.wait(self._state.health.metrics()).model_dump()

    def get_pid(self) -> int:
        """Return the process id of the controller."""
        return os.getpid()

    def wait_for_shutdown(self) -> None:
        """Block until Serve has shut down."""
        self._has_shut_down.wait()

    def shutdown(self) -> None:
        """Stop everything except this actor, which the caller kills afterwards."""
        with self._shutdown_lock:
            if not self._has_shut_down.is_set():
                self._loop.wait(self._state.shutdown())
                self._loop.stop()
                self._watch.close()
                self._has_shut_down.set()
