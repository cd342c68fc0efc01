"""The display of running work on a terminal, in a notebook or in the log. One thread per process updates it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import skate._engine as engines
from skate._api.progress.notebook import NotebookOutput
from skate._api.progress.terminal import Terminal, is_terminal
from skate._api.progress.view import View
from skate._base.background_threads import make_background_thread

SWITCH = "SKATE_PROGRESS"
_OFF = ("0", "false", "no", "off")
_ON = ("", "1", "true", "yes", "on")
_EACH_RANK = "ranks"  # a line per worker of a training run

DELAY_S = 1.0  # shorter work shows nothing
INTERVAL_S = 0.25  # between two updates
LOG_DELAY_S = 5.0  # before the first line in a log; each later one waits twice as long, up to:
LOG_INTERVAL_S = 30.0

logger = logging.getLogger("skate.progress")


def is_wanted() -> bool:
    """Return whether to show progress: in a driver, unless it is turned off.

    Raises:
        ValueError: The variable has an unknown value.
    """
    engine = engines.running()
    return is_turned_on() and (engine is None or not engine.is_worker)


def is_turned_on() -> bool:
    """Return whether the variable allows progress, in any process."""
    return _setting() not in _OFF


def shows_each_rank() -> bool:
    """Return whether a training run has a line per worker."""
    return _setting() == _EACH_RANK


def _setting() -> str:
    word = os.environ.get(SWITCH, "").lower()
    if word not in (*_OFF, *_ON, _EACH_RANK):
        raise ValueError(f"{SWITCH} is {word!r}: set it to 1, 0 or {_EACH_RANK}.")
    return word


def show(
    describe: Callable[[], View | None],
    *,
    keep: bool = True,
    logs_end: bool = True,
    max_log_interval: float = LOG_INTERVAL_S,
) -> Shown | None:
    """Display running work on a terminal, in a notebook or, without either, in the log, until `Shown.close` is called.

    Args:
        describe: Returns the current view, or None to show nothing at the moment. It is called in another thread, so
            it must not change anything.
        keep: Whether a notebook keeps the last view. A terminal never does.
        logs_end: Whether to log a final line, if earlier lines about the work have been logged.
        max_log_interval: The maximum time between two log lines in seconds.

    Returns:
        A handle that ends the display; None if progress is turned off.
    """
    return Shown(describe, keep, logs_end, max_log_interval) if is_wanted() else None


class Shown:
    """Work that is displayed."""

    def __init__(
        self, describe: Callable[[], View | None], keep: bool, logs_end: bool, max_log_interval: float
    ) -> None:
        self.describe = describe
        self.keep = keep
        self.logs_end = logs_end
        self.max_log_interval = max_log_interval
        self.begun = time.monotonic()
        self.due = self.begun + DELAY_S
        self.view: View | None = None  # the latest result of `describe`
        self.last: View | None = None  # what was shown last
        self.lines = 0  # in the log
        self.next_line = LOG_DELAY_S
        self.output = NotebookOutput()
        _screen.add(self)

    def close(self) -> None:
        """End the display of the work. Further calls have no effect."""
        _screen.remove(self)


class Display(Protocol):
    """A place where views are shown."""

    def update(self, shown: Sequence[tuple[Shown, View]]) -> None:
        """Show the views of all work that is due, the oldest first."""

    def remove(self, shown: Shown) -> None:
        """Handle the end of some work."""

    def close(self) -> None:
        """Handle the end of the last work."""


def _choose_display(lock: threading.RLock) -> Display:
    from skate.widgets.util import in_notebook

    if in_notebook():
        return _NotebookDisplay()
    if is_terminal(sys.stderr):
        return _TerminalDisplay(Terminal(sys.stderr, lock))
    return _LogDisplay()


class _TerminalDisplay:
    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        terminal.open()

    def update(self, shown: Sequence[tuple[Shown, View]]) -> None:
        self.terminal.draw([view for _, view in shown])

    def remove(self, shown: Shown) -> None:
        """Do nothing: the next update draws the remaining work."""

    def close(self) -> None:
        self.terminal.close()


class _NotebookDisplay:
    def update(self, shown: Sequence[tuple[Shown, View]]) -> None:
        for each, view in shown:
            each.output.show(view)

    def remove(self, shown: Shown) -> None:
        if shown.keep and shown.last is not None:
            shown.output.show(shown.describe() or shown.last)
        else:
            shown.output.clear()

    def close(self) -> None:
        """Do nothing: outputs stay in their cells."""


class _LogDisplay:
    def update(self, shown: Sequence[tuple[Shown, View]]) -> None:
        for each, view in shown:
            elapsed = time.monotonic() - each.begun
            if elapsed >= each.next_line:
                each.next_line = elapsed + min(elapsed, each.max_log_interval)
                each.lines += 1
                _write_log(view.line())

    def remove(self, shown: Shown) -> None:
        if shown.lines and shown.logs_end and shown.last is not None:
            _write_log((shown.describe() or shown.last).last_line())

    def close(self) -> None:
        """Do nothing: lines stay in the log."""


def _write_log(line: str) -> None:
    """Log a line, or print it if the program has not configured logging."""
    if logger.hasHandlers():
        logger.info("%s", line)
    elif sys.stderr is not None:
        sys.stderr.write(f"{line}\n")


class _Screen:
    """Displays the work of this process. A thread updates the display, and ends when no work is left."""

    def __init__(self) -> None:
        # Both are reentrant, because a signal handler or the garbage collector may end work at any point.
        self._lock = threading.RLock()  # of the list and the thread; never held while something is written
        self._display_lock = threading.RLock()
        self._shown: list[Shown] = []
        self._thread: threading.Thread | None = None
        self._display: Display | None = None

    def add(self, shown: Shown) -> None:
        """Display work once it has run long enough."""
        with self._lock:
            self._shown.append(shown)
            if self._thread is None:
                self._thread = make_background_thread("progress", self._run)
                self._thread.start()

    def remove(self, shown: Shown) -> None:
        """Stop displaying work. The thread is not woken, so that the end of short work costs nothing."""
        with self._lock:
            if shown not in self._shown:
                return
            self._shown.remove(shown)
        with self._display_lock:
            if self._display is not None and shown.last is not None:
                self._display.remove(shown)
                self._draw()

    def remove_all(self) -> None:
        """Remove everything from the screen when the program ends."""
        for each in list(self._shown):
            self.remove(each)

    def reset_after_fork(self) -> None:
        """In a forked child, forget the work and the thread of the parent."""
        if isinstance(self._display, _TerminalDisplay):
            self._display.terminal.leave()
        self.__init__()  # type: ignore[misc]  # its locks may be held by threads that do not exist here

    def _run(self) -> None:
        try:
            while True:
                time.sleep(INTERVAL_S)
                with self._lock:
                    if not self._shown:
                        self._thread = None
                        return
                self._describe()
                with self._display_lock:
                    self._draw()
        except Exception:
            logger.exception("The progress display has failed and is turned off.")
            with self._lock:
                self._shown.clear()
                self._thread = None

    def _describe(self) -> None:
        """Return the views of all work that is due. No lock is held, because `describe` may be slow."""
        now = time.monotonic()
        for each in list(self._shown):
            if each.due <= now:
                each.view = each.describe()

    def _draw(self) -> None:
        """Show the views."""
        views = []
        for each in list(self._shown):
            if each.view is not None:
                each.last = each.view
                views.append((each, each.view))
        if views:
            self._display = self._display or _choose_display(self._display_lock)
            self._display.update(views)
        elif self._display is not None:
            self._display.close()
            self._display = None


_screen = _Screen()
atexit.register(_screen.remove_all)
os.register_at_fork(after_in_child=_screen.reset_after_fork)
