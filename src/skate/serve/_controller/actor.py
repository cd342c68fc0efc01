"""The controller's actor: what programs ask of it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from skate.serve._build.spec import ApplicationSpec
from skate.serve._loop import ServeLoop
from skate.serve._observability.observers import ProcessObserver
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._process import adopt
from skate.serve._schema.statuses import ServeStatus

if TYPE_CHECKING:
    from skate.serve._controller.state import State
    from skate.serve._wire import Address

__all__ = ["Controller"]


class Controller:
    """Knows what should run, and sees that it does. If its process is killed, another one goes on: see `State.open`.

    Its methods block, in threads of the actor; everything happens on one loop. None of them is a coroutine function,
    which would make all of them share one thread.
    """

    def __init__(
        self,
        http_options: dict[str, Any] | None,
        grpc_options: dict[str, Any] | None,
        watch: ObservabilityOptions | None = None,
    ) -> None:
        # Not above: the program that starts Serve imports this module, and has no use for what is behind it.
        from skate.serve._controller.state import State

        self._watch = ProcessObserver("controller", watch or ObservabilityOptions())
        self._loop = ServeLoop("skate-serve-controller")
        self._is_over = threading.Event()
        self._turn = threading.Lock()  # of those who shut it down
        adopt(self._loop)
        self._state: State = State(http_options, grpc_options)
        self._address: Address = self._loop.wait(self._state.open())

    def address(self) -> Address:
        """Return where the controller listens."""
        return self._address

    def start_proxy(self) -> dict[str, Any] | None:
        """See that the proxy runs; returns where it listens, or None where there is to be none."""
        return self._loop.wait(self._state.proxy.start())

    def deploy(self, specs: list[ApplicationSpec]) -> None:
        """Deploy applications, or change what is deployed under their names."""
        self._loop.wait(self._state.deploy(specs))

    def declare(self, file: dict[str, Any], folder: str | None) -> None:
        """Have the applications of a file in place of those of the file before it."""
        self._loop.wait(self._state.declare(file, folder))

    def configs(self) -> dict[str, dict[str, Any]]:
        """Return what files say about the applications that they declare."""
        return self._loop.wait(self._state.configs())

    def details(self) -> dict[str, Any]:
        """Return all there is to know, as the fields of `ServeInstanceDetails`."""
        return self._loop.wait(self._state.details())

    def wait_until_running(self, name: str) -> str | None:
        """Wait until an application runs; returns what went wrong, or None."""
        return self._loop.wait(self._state.running(name))

    def scale(self, app: str, deployment: str, replicas: int) -> None:
        """Give a deployment a number of replicas, where the application lets somebody outside decide."""
        self._loop.wait(self._state.scale(app, deployment, replicas))

    def get_external_scaler_enabled(self, app: str) -> bool:
        """Tell whether an application allows its deployments to be scaled from outside."""
        return self._loop.wait(self._state.is_externally_scaled(app))

    def delete(self, names: list[str], wait: bool) -> None:
        """Stop applications."""
        self._loop.wait(self._state.delete(names, wait))

    def status(self) -> ServeStatus:
        """Return how everything stands."""
        return self._loop.wait(self._state.status())

    def ingress_of(self, app: str) -> str | None:
        """Return the name of an application's ingress deployment, or None if there is no such application."""
        return self._loop.wait(self._state.ingress_of(app))

    def deployments_of(self, app: str) -> list[str] | None:
        """Return the names of an application's deployments, or None if there is no such application."""
        return self._loop.wait(self._state.deployments_of(app))

    def get_health_metrics(self) -> dict[str, Any]:
        """Return how the controller itself is doing, as the fields of `ControllerHealthMetrics`."""
        return self._loop.wait(self._state.health.metrics()).model_dump()

    def get_pid(self) -> int:
        """Return the number of the controller's process."""
        return os.getpid()

    def until_shutdown(self) -> None:
        """Return when Serve has been shut down."""
        self._is_over.wait()

    def shutdown(self) -> None:
        """Stop everything but this actor, which whoever asks ends afterwards."""
        with self._turn:
            if not self._is_over.is_set():
                self._loop.wait(self._state.shutdown())
                self._loop.stop()
                self._watch.close()
                self._is_over.set()
