"""The result of a call, readable from any thread and any event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import skate
from skate._api.payloads import unpack

__all__ = ["Result"]


class Result:
    """A result that is set once, on the Serve event loop, and read anywhere.

    It holds a packed value, a reference to a value, or an error. It needs no lock: waiters register before checking
    `is_set`, and the setter sets `is_set` before waking them.
    """

    __slots__ = ("_error", "_packed", "_reference", "_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._packed: bytes | None = None
        self._reference: Any = None
        self._error: BaseException | None = None
        self._waiters: list[Any] = []

    def set_packed(self, data: bytes) -> None:
        """Set the packed value."""
        self._packed = data
        self._wake_waiters()

    def set_reference(self, reference: Any) -> None:
        """Set a reference to the value."""
        self._reference = reference
        self._wake_waiters()

    def set_error(self, error: BaseException) -> None:
        """Set the error."""
        if not self.is_set:
            self._error = error
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        self.is_set = True
        for waiter in self._waiters:
            _wake(waiter)
        self._waiters.clear()

    def poll(self) -> bool:
        """Return whether the result is set. Waiters call it after registering."""
        return self.is_set

    @property
    def error(self) -> BaseException | None:
        """The error, or None."""
        return self._error

    @property
    def reference(self) -> Any:
        """The reference to the value, or None."""
        return self._reference

    def wait(self, timeout: float | None) -> None:
        """Block this thread until the result is set.

        Raises:
            TimeoutError: If the result is not set in time.
        """
        if self.is_set:
            return
        done = threading.Lock()
        done.acquire()
        self._waiters.append(done)
        if not self.poll() and not done.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError

    async def ready(self) -> None:
        """Wait in the running event loop until the result is set."""
        if self.is_set:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        if not self.poll():
            await future

    def value(self) -> Any:
        """Return the value, or raise the error. It may block this thread."""
        if self._error is not None:
            raise self._error
        if self._packed is not None:
            return unpack(self._packed)
        return skate.get(self._reference)

    async def value_async(self) -> Any:
        """Return the value, or raise the error, without blocking the event loop."""
        if self._reference is not None:
            return await self._reference
        return self.value()


def _wake(waiter: Any) -> None:
    if not isinstance(waiter, asyncio.Future):
        waiter.release()
        return
    loop = waiter.get_loop()
    if loop is asyncio.get_running_loop():
        _finish(waiter)
    else:
        try:
            loop.call_soon_threadsafe(_finish, waiter)
        except RuntimeError:
            return  # the waiter's loop is closed


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
