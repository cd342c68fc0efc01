"""Ctrl-C at a safe moment: not while a message is partly read, written or handled.

Python raises KeyboardInterrupt between any two instructions of the main thread. Inside the functions that keep the
message streams consistent, that would lose messages, and the session would hang. There the handler defers the signal:
it inspects the stack, and sends the signal again a little later. Without an interrupt, this costs nothing.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from skate._engine.common import signals

# An interrupt is raised in any case after so many deferrals, which take at least a second. Time alone does not count:
# on a busy machine, the process may not have run meanwhile.
MOST_DEFERRALS = 1000

_critical: set[CodeType] = set()
_waiting: set[CodeType] = set()


def critical(*functions: Any) -> None:
    """Defer interrupts inside these functions and their callees."""
    _critical.update(function.__code__ for function in functions)


def waiting(*functions: Any) -> None:
    """Allow interrupts inside these functions, because they wait."""
    _waiting.update(function.__code__ for function in functions)


def _is_critical(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _waiting:
            return False
        if frame.f_code in _critical:
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """Handles a signal at safe moments.

    Args:
        handle: The handler.
        number: The signal.
        default: The handler where Skate installs none, for example in forked children.
        spare_imports: Defer the signal during the import of a module, because the process continues afterwards.
    """

    def __init__(
        self,
        handle: signals.Handle,
        *,
        number: int = signal.SIGINT,
        default: Any = signal.default_int_handler,
        spare_imports: bool = False,
    ) -> None:
        self._handle = handle
        self._number = number
        self._default = default
        self._spare_imports = spare_imports
        self._since = 0.0  # when the deferred interrupt arrived
        self._deferrals = 0

    def install(self, *, always: bool = False) -> None:
        """Install the handler, unless the program handles the signal itself."""
        if always or signals.is_free(self._number, self._default):
            signals.install(self._number, self.arrived, self._default)

    def uninstall(self) -> None:
        """Restore the handler of Python."""
        signals.uninstall(self._number)

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal now, or send it again later."""
        if self._must_wait(frame):
            self._since = self._since or time.monotonic()
            self._deferrals += 1
            try:
                _thread.start_new_thread(_send_again, (number,))
                return
            except RuntimeError:  # the interpreter is shutting down and has no threads
                pass
        self._since, self._deferrals = 0.0, 0
        self._handle(number, frame)

    def _must_wait(self, frame: FrameType | None) -> bool:
        if self._spare_imports and signals.is_importing(frame):
            now = time.monotonic()
            return now - (self._since or now) < signals.IMPORT_TIMEOUT_S
        return self._deferrals < MOST_DEFERRALS and _is_critical(frame)


def _send_again(number: int) -> None:
    time.sleep(signals.RESEND_INTERVAL_S)
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def held_back() -> Iterator[None]:
    """Defer an interrupt to the end of the block, for C code that must not be interrupted."""
    arrived: list[int] = []
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if arrived:
        raise KeyboardInterrupt
