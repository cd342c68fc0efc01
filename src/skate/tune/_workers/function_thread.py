"""The thread in which a worker runs trainable functions."""

from __future__ import annotations

import contextvars
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from skate._api import tracing

_Function = Callable[[], None]

_SWITCH_INTERVAL_S = 0.0005


class FunctionThread:
    """Runs functions one after another, because starting a thread for each takes longer than a short trial."""

    def __init__(self) -> None:
        functions: SimpleQueue[_Function | None] = SimpleQueue()
        self._functions = functions
        threading.Thread(target=_run_all, args=(functions,), name="trials", daemon=True).start()
        weakref.finalize(self, functions.put, None).atexit = False

    def run(self, function: _Function) -> None:
        """Run a function once the earlier ones have ended; it must not raise."""
        self._functions.put(tracing.carry(function))


def _run_all(functions: SimpleQueue[_Function | None]) -> None:
    while (function := functions.get()) is not None:
        contextvars.Context().run(function)
        del function  # with all that it refers to, while the next one is awaited


@contextmanager
def switching_often() -> Iterator[None]:
    """Let this thread run soon after each system call, although a function keeps the interpreter busy.

    By default, a thread waits five milliseconds for a busy one, which is half of a short trial.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _SWITCH_INTERVAL_S))
    changed = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == changed:  # otherwise the function has set its own
            sys.setswitchinterval(usual)
