"""Ctrl-C at a safe moment: not while a message is half read, half written or half handled.

Python raises KeyboardInterrupt between any two instructions of the main thread. Inside the functions that
keep the streams of messages whole, that would lose messages, and the session would hang. So there the
signal is put off for a moment: the handler looks at the stack, and sends the signal again a little later.
This costs nothing when nobody interrupts.
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

from skate._engine.common import importing, signals

PATIENCE = 1.0  # seconds after which the interrupt comes first, whatever it breaks

_critical: set[CodeType] = set()
_waiting: set[CodeType] = set()


def critical(*functions: Any) -> None:
    """Let nobody be interrupted inside these functions, nor in what they call."""
    _critical.update(function.__code__ for function in functions)


def waiting(*functions: Any) -> None:
    """Let these functions be interrupted all the same: they wait."""
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
    """Handles a signal of a process with `handle`, at moments that are safe.

    Args:
        handle: What is done.
        number: The signal.
        default: Its handler where Skate has none, in forked children among others.
        spare_imports: Put the signal off while a module is imported: the process is to go on afterwards.
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
        self._since = 0.0  # when the interrupt came that is being put off

    def install(self, *, always: bool = False) -> None:
        """Take over the signal, unless the program handles it itself."""
        if always or signals.is_free(self._number, self._default):
            signals.install(self._number, self.arrived, self._default)

    def uninstall(self) -> None:
        """Give the signal back to Python."""
        signals.uninstall(self._number)

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal now, or see to it that it comes again."""
        now = time.monotonic()
        patience = PATIENCE if _is_critical(frame) else 0.0
        if self._spare_imports and importing.is_importing(frame):
            patience = importing.PATIENCE
        if now - (self._since or now) < patience:
            self._since = self._since or now
            try:
                _thread.start_new_thread(_send_again, (number,))
                return
            except RuntimeError:  # the interpreter ends, and has no threads any more
                pass
        self._since = 0.0
        self._handle(number, frame)


def _send_again(number: int) -> None:
    time.sleep(importing.AGAIN)
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt wait until this is over: for C code that cannot bear one."""
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
