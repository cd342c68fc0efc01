"""Signal handlers of Skate, which a forked child does not inherit.

User code forks, for example in `multiprocessing` and in data loaders. A child with the handlers of a worker would
survive `Process.terminate()`, and one with its wake-up descriptor would wake the event loop of its parent. So every
child restores the handlers from before, and no others. The signals are blocked meanwhile: Python drops a signal that
arrives before the child runs, and a parent may end a child that it has just started.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any, NamedTuple

# A deferred interrupt waits this long for an import: NumPy cannot be imported again after an interrupted import.
IMPORT_TIMEOUT_S = 30.0
RESEND_INTERVAL_S = 0.001  # until a deferred signal is sent again

Handle = Callable[[int, FrameType | None], Any]


class _Handlers(NamedTuple):
    """Skate's handler of a signal, and the one for children."""

    own: Handle
    before: Any


_imports: CodeType = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]
_own: dict[int, _Handlers] = {}
_masks: dict[int, Iterable[int]] = {}  # by thread: the signals that were blocked before the fork
_owns_wakeup = False


def install(number: int, handle: Handle, before: Any) -> None:
    """Handle a signal in this process; `before` is the handler in forked children, and after `uninstall`."""
    _own[number] = _Handlers(handle, before)
    signal.signal(number, handle)


def uninstall(number: int) -> None:
    """Restore the handler from before `install`, unless the program has set another one since."""
    if threading.current_thread() is threading.main_thread():
        _restore(number, _own.pop(number, None))


def _restore(number: int, handlers: _Handlers | None) -> None:
    if handlers is not None and signal.getsignal(number) == handlers.own:
        signal.signal(number, handlers.before)


def is_free(number: int, default: Any) -> bool:
    """Return whether this thread may install a handler, and the program has none of its own."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(number) is default


class SignalExit(SystemExit):
    """Ends the program because of a signal, even while the inline engine runs a task."""


def exit_on_signal(number: int, _: FrameType | None) -> None:
    """End the program as `sys.exit` does, so that exit handlers run; the exit code is the signal's number."""
    raise SignalExit(number)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether the code in a frame is part of an import, which an interrupt must not break."""
    while frame is not None:
        if frame.f_code is _imports:
            return True
        frame = frame.f_back
    return False


def own_wakeup_descriptor() -> None:
    """Mark this process as a worker, whose main thread may run an event loop of Skate."""
    global _owns_wakeup
    _owns_wakeup = True


def _before_fork() -> None:
    if _own:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _own)


def _unblock() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_in_child() -> None:
    global _owns_wakeup
    for number, handlers in _own.items():
        _restore(number, handlers)
    _own.clear()
    if _owns_wakeup:
        _owns_wakeup = False
        signal.set_wakeup_fd(-1)
    _unblock()
    _masks.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_unblock, after_in_child=_after_in_child)
