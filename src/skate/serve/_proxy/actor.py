"""The proxy actor, which the controller starts and stops."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from skate.serve._observability.observers import ProcessObserver
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._router.runtime import close_runtime, set_loop
from skate.serve._runtime.engine import stop_with_session
from skate.serve._runtime.loop import ServeLoop
from skate.serve._runtime.stop_event import StopEvent

if TYPE_CHECKING:
    from skate.serve._proxy.listeners import Listeners

__all__ = ["Proxy"]


class Proxy:
    """Accept requests from clients and forward them to replicas."""

    def __init__(
        self,
        http: dict[str, Any] | None,
        grpc: dict[str, Any] | None = None,
        observability: ObservabilityOptions | None = None,
    ) -> None:
        self._http = http
        self._grpc = grpc
        self._observer = ProcessObserver("proxy", observability or ObservabilityOptions())
        self._loop = ServeLoop("skate-serve-proxy")
        stop_with_session(self._loop)
        set_loop(self._loop)
        self._stopped = StopEvent()
        self._lock = threading.Lock()
        self._listening: dict[str, Any] | None = None
        self._listeners: Listeners | None = None

    def start(self) -> dict[str, Any]:
        """Listen, and return the addresses. A restarted controller may call it again."""
        with self._lock:
            if self._listening is None:
                self._listening = {"pid": os.getpid(), **self._listen()}
        return self._listening

    def _listen(self) -> dict[str, Any]:
        if self._http is None:
            return {}
        # Imported here because the controller imports this module and needs no HTTP server.
        from skate.serve._proxy.listeners import Listeners

        self._listeners = Listeners(self._http, self._grpc, self._observer.tracer)
        return self._loop.wait(self._listeners.open())

    def stop(self) -> None:
        """Answer the ongoing requests, and stop."""
        if self._listeners is not None:
            self._loop.wait(self._listeners.close())
        close_runtime()
        self._observer.close()
        self._loop.stop()
        self._stopped.set()

    def until_stopped(self) -> bool:
        """Return when the proxy has stopped. The caller notices immediately if the process dies."""
        return self._stopped.wait()
