"""Drivers of the engine while the program waits outside of it: the program's event loop, or a thread.

`await ref` in an event loop of the user must let the actors run, so the driver runs the engine between the callbacks
of that loop. `ref.future()` may be waited for in any way, so a thread runs the engine while such a future is pending.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from skate._engine.inline.progress import THREAD_PREFIX, Progress


class LoopDriver:
    """Runs the engine inside an event loop of the user."""

    def __init__(self, progress: Progress, loop: Any) -> None:
        self._progress = progress
        self._loop = loop
        self._thread = threading.get_ident()
        self._scheduled = False
        self._timer: Any = None
        self._descriptor: int | None = None
        self.waiting = 0
        progress.loop_drivers.append(self)

    @property
    def loop(self) -> Any:
        """The event loop; None when it is closed."""
        return None if self._loop.is_closed() else self._loop

    def begin(self) -> Callable[[], None]:
        """Begin a wait in the loop; return the function that ends it."""
        self.waiting += 1
        self.poke()

        def end() -> None:
            self.waiting -= 1
            self.poke()

        return end

    def poke(self) -> None:
        """Run the engine at the loop's next turn."""
        if self._scheduled:
            return
        if self._loop.is_closed():
            self._leave()
            return
        self._scheduled = True
        if self._thread == threading.get_ident():
            self._loop.call_soon(self._turn)
        else:
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        progress = self._progress
        more = progress.run_ready()
        if not self.waiting:
            self._leave()
        elif more or progress.advance_streams():
            self.poke()
        else:
            pause = progress.pause()
            if pause is not None:
                self._timer = self._loop.call_later(pause, self.poke)
            if self._descriptor is None and progress.loops:
                self._descriptor = progress.fileno()
                self._loop.add_reader(self._descriptor, self.poke)

    def _leave(self) -> None:
        if self in self._progress.loop_drivers:
            self._progress.loop_drivers.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._descriptor is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._descriptor = None

    def close(self) -> None:
        """Remove the driver from the loop."""
        if self._thread == threading.get_ident() or self._loop.is_closed():
            self._leave()
        else:
            self._loop.call_soon_threadsafe(self._leave)


class ThreadDriver:
    """Runs the engine in a thread while callbacks wait for results."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._waiting = 0
        self._closed = False

    def begin(self) -> Callable[[], None]:
        """Begin a wait outside of `get`; return the function that ends it."""
        with self._lock:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}-driver", daemon=True)
                self._thread.start()

        def end() -> None:
            with self._lock:
                self._waiting -= 1
            self._progress.changed()

        return end

    def _run(self) -> None:
        while True:
            self._progress.until(lambda: self._closed or not self._waiting, None, None)
            with self._lock:
                if self._closed or not self._waiting:
                    self._thread = None
                    return

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._progress.changed()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class WaitDrivers:
    """Chooses the driver of a wait."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._thread_driver = ThreadDriver(progress)

    def begin(self) -> Callable[[], None] | None:
        """Begin a wait outside of `get`; return the function that ends it, if a driver is needed."""
        asyncio = sys.modules.get("asyncio")
        loop = None if asyncio is None else asyncio._get_running_loop()
        if loop is None:
            return self._thread_driver.begin()
        if loop in self._progress.loops:
            return None  # an actor's loop: the thread that runs it runs the other loops too
        for driver in self._progress.loop_drivers:
            if driver.loop is loop:
                return driver.begin()
        return LoopDriver(self._progress, loop).begin()

    def close(self) -> None:
        """Remove all drivers."""
        for driver in list(self._progress.loop_drivers):
            driver.close()
        self._thread_driver.close()
