"""Attaches the driver's terminal to workers that have stopped at a breakpoint."""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from skate._engine.common.platform import system
from skate._engine.local.client.job import has_terminal
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.common.platform.interface import Wakeup


class DebugTerminal:
    """Attaches to one breakpoint after the other in a thread, while the program continues."""

    def __init__(self, folder: str) -> None:
        self._folder = folder  # the session's folder
        self._stops: deque[dict[str, Any]] = deque()
        self._lock = threading.RLock()  # a signal handler may interrupt the thread that holds it
        self._thread: threading.Thread | None = None
        self._release: Wakeup | None = None  # setting it ends all attachments of the thread

    def stopped(self, message: m.Stopped) -> None:
        """Handle a worker that waits for a debugger. Never blocks."""
        with self._lock:
            self._stops.append(message.breakpoint)
            if self._thread is None:
                self._release = system.wakeup()
                self._thread = threading.Thread(target=self._run, name="skate-debug", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        release = self._release
        assert release is not None
        while True:
            with self._lock:
                if not self._stops:
                    self._thread = None
                    release.close()
                    self._release = None
                    return
                stop = self._stops.popleft()
            self._attach(stop, release.fileno())

    def _attach(self, breakpoint: dict[str, Any], release: int) -> None:
        from skate._base.remote_pdb import Breakpoint, attach  # which imports pdb

        stop = Breakpoint(**breakpoint)
        if not has_terminal():  # for example, the program was moved to the background
            sys.stderr.write(
                f"Stopped at {stop}. Attach with: skate debug {stop.id} --address {self._folder}\n"
            )
            return
        sys.stdout.write(f"Stopped at {stop}.\n")
        sys.stdout.flush()
        try:
            attach(stop, until=release)
        except OSError as error:  # the worker was killed, or another terminal attached first
            sys.stderr.write(f"The debugger ended: {error}\n")

    def release(self) -> None:
        """Detach from all stopped workers, which then continue. May be called from a signal handler."""
        with self._lock:
            if self._release is not None:
                self._release.set()

    def close(self) -> None:
        """Detach, and wait for the thread."""
        thread = self._thread
        self.release()
        if thread is not None:
            thread.join()
