"""Event loops in threads: all sockets and requests of Serve in a process live on one loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["ServeLoop", "new_event_loop"]

logger = logging.getLogger("skate.serve")

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if uvloop is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class ServeLoop:
    """An event loop in a thread of its own, which ends with `stop`."""

    def __init__(self, name: str = "skate-serve") -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this loop's thread."""
        return threading.get_ident() == self._thread.ident

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a function call on the loop."""
        self.loop.call_soon_threadsafe(function, *args)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and block until it returns. Must be called from another thread."""
        future = self.submit(coroutine)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel all tasks, then stop the loop and its thread."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            is_over = False
            while not is_over:
                try:
                    loop.run_forever()
                    is_over = True
                except (KeyboardInterrupt, SystemExit) as error:
                    # From a task of user code. The tasks of other requests continue.
                    logger.error("%r ended a task in the thread %s.", error, self._thread.name)
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(asyncio.sleep(0))  # closes the connections of cancelled tasks
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
