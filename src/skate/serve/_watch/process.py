"""Logs and traces of the processes that run no user's code: the controller, and the proxy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skate.serve._runtime.engine import shares_process
from skate.serve._watch.logs import Component, ServeLogs
from skate.serve._watch.options import WatchOptions, set_options

if TYPE_CHECKING:
    from skate.serve._watch.tracing import Tracer

__all__ = ["ProcessWatch"]


class ProcessWatch:
    """Watches this process, if it is one of its own.

    Args:
        kind: "controller" or "proxy".
        options: How Serve is watched.
    """

    def __init__(self, kind: str, options: WatchOptions) -> None:
        self.tracer: Tracer | None = None
        self._logs: ServeLogs | None = None
        set_options(options)
        if shares_process():
            return  # the logger is the program's own, and so are its traces
        component = Component(kind, str(os.getpid()))
        self._logs = ServeLogs(component)
        self._logs.configure(options.logging)
        if options.tracing is not None and kind == "proxy":
            from skate.serve._watch.tracing import set_up

            self.tracer = set_up(component, options)

    def close(self) -> None:
        """Write what is left."""
        if self.tracer is not None:
            self.tracer.close()
        if self._logs is not None:
            self._logs.close()
