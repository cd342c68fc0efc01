"""The actor of the proxy: what the controller asks of it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from skate.serve._router.runtime import close_runtime, set_loop
from skate.serve._runtime.engine import stop_with_session
from skate.serve._runtime.loop import ServeLoop
from skate.serve._runtime.stop_event import StopEvent
from skate.serve._watch.options import WatchOptions
from skate.serve._watch.process import ProcessWatch

if TYPE_CHECKING:
    from skate.serve._proxy.doors import Doors

__all__ = ["Proxy"]


class Proxy:
    """Takes requests from outside and gives them to replicas."""

    def __init__(
        self,
        http: dict[str, Any] | None,
        grpc: dict[str, Any] | None = None,
        watch: WatchOptions | None = None,
    ) -> None:
        self._http = http
        self._grpc = grpc
        self._watch = ProcessWatch("proxy", watch or WatchOptions())
        self._loop = ServeLoop("skate-serve-proxy")
        stop_with_session(self._loop)
        set_loop(self._loop)
        self._ending = StopEvent()
        self._turn = threading.Lock()
        self._listening: dict[str, Any] | None = None
        self._doors: Doors | None = None

    def start(self) -> dict[str, Any]:
        """Listen, and return where; a controller that took the place of another one may ask again."""
        with self._turn:
            if self._listening is None:
                self._listening = {"pid": os.getpid(), **self._listen()}
        return self._listening

    def _listen(self) -> dict[str, Any]:
        if self._http is None:
            return {}
        # Not above: the controller imports this module, and has no use for a server of HTTP.
        from skate.serve._proxy.doors import Doors

        self._doors = Doors(self._http, self._grpc, self._watch.tracer)
        return self._loop.wait(self._doors.open())

    def stop(self) -> None:
        """Stop when the requests under way have been answered."""
        if self._doors is not None:
            self._loop.wait(self._doors.close())
        close_runtime()
        self._watch.close()
        self._loop.stop()
        self._ending.set()

    def until_stopped(self) -> bool:
        """Return when the proxy has been stopped; whoever waits for it learns at once if the process dies."""
        return self._ending.wait()
