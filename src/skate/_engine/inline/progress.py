"""The progress engine: it runs work that is possible, waits, and detects deadlocks.

There is no background thread. A thread that waits (in `get`, `wait`, `await`, or for an item of a stream) runs the
possible work: pending callbacks, the event loops of asynchronous actors, the bodies of generators. When none of them
can continue and nothing outside could change that, the wait is a deadlock and raises an error.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from skate._base import errors as exceptions
from skate._base.background_threads import is_background_thread
from skate._base.errors.task import root_cause
from skate._engine.common.threads import is_pool_worker, rests_in_pool

if TYPE_CHECKING:
    from skate._engine.inline.drivers import LoopDriver
    from skate._engine.inline.loops import ActorLoop

MAX_ROUNDS = 10  # rounds in which `.remote()` runs coroutines that never pause
THREAD_CHECK_INTERVAL_S = 1.0  # interval at which a wait checks whether the threads it depends on are alive
THREAD_PREFIX = "skate-inline"  # prefix of the names of the engine's own threads
WAIT_WARNING_S = 10.0  # seconds after which a wait for other threads logs a warning

_RULE = (
    "The inline engine runs everything in the thread that asks: a task runs to its end inside `.remote()`, and "
    "an actor runs one call after the other. So a task cannot wait for what its caller does after `.remote()`, "
    "nor an actor for a call of its own. Do that first, or run the program with the local engine."
)
_LIBRARY = os.path.join(os.path.dirname(threading.__file__), "")


class Advancing(Protocol):
    """A generator that can be advanced to its next item."""

    def advance_when_idle(self) -> bool:
        """Advance unless backpressure forbids it; return whether that made a difference."""


class Progress:
    """Runs possible work in the waiting thread."""

    def __init__(self) -> None:
        # Guards short sections of the whole engine; user code never runs while it is held.
        self.lock = threading.Lock()
        self.loops: dict[Any, ActorLoop] = {}
        self.streams: dict[bytes, Advancing] = {}
        self.loop_drivers: list[LoopDriver] = []
        self._work: deque[Callable[[], None]] = deque()
        self._changes = 0
        self._changed = threading.Condition()
        self._blocked: set[int] = set()
        self._poller = 0  # the thread that waits for I/O; others wait for `_changed`
        self._selector: selectors.BaseSelector | None = None
        self._wakers: tuple[socket.socket, socket.socket] | None = None

    # ------------------------------------------------------------ queued work

    def add(self, work: Callable[[], None]) -> None:
        """Queue `work` for the next thread that waits."""
        self._work.append(work)
        self.changed()

    def soon(self, work: Callable[[], None]) -> None:
        """Do `work` now, or queue it if the engine's lock is held. For the garbage collector."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
            work()
        else:
            self.add(work)

    def awaken(self, loop: Any) -> None:
        """Mark an event loop as having work."""
        found = self.loops.get(loop)
        if found is not None:
            found.due = True
            self.changed()

    def changed(self) -> None:
        """Make every waiting thread check again."""
        self._changes += 1
        if self._blocked:
            if self._poller not in (0, threading.get_ident()) and self._wakers is not None:
                try:
                    self._wakers[1].send(b"\0")
                except BlockingIOError:  # its buffer is full of wake-ups
                    pass
            with self._changed:
                self._changed.notify_all()
        for driver in list(self.loop_drivers):
            driver.poke()

    # ------------------------------------------------------------ running work

    def step(self) -> bool:
        """Run all work that is possible now, once; return whether there was any."""
        ran = False
        for _ in range(len(self._work)):
            try:
                work = self._work.popleft()
            except IndexError:  # another thread took it
                break
            work()
            ran = True
        if self.loops:
            self._poll(0)
            now = time.monotonic()
            for loop in list(self.loops.values()):
                if loop.can_run(now):
                    ran = loop.run() or ran
        return ran

    def run_ready(self) -> bool:
        """Run until no work is possible, or for several rounds; return whether there may be more."""
        return all(self.step() for _ in range(MAX_ROUNDS))

    def advance_streams(self) -> bool:
        """Advance one generator that is behind."""
        return any(stream.advance_when_idle() for stream in list(self.streams.values()))

    def until(
        self,
        done: Callable[[], bool],
        timeout: float | None,
        on_deadlock: Callable[[], BaseException] | None,
    ) -> bool:
        """Run possible work until `done()`; return whether it is done, or the time is up.

        Args:
            done: Checked again after each step.
            timeout: The longest wait in seconds.
            on_deadlock: Returns the error to raise for a deadlock; with None, the wait continues.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        began = 0.0
        while not done():
            seen = self._changes
            ran = self.step()
            if deadline is not None and time.monotonic() >= deadline:
                return done()
            if ran or done() or self.advance_streams():
                continue
            began = began or time.monotonic()
            began = self._block(seen, deadline, on_deadlock, began)
        return True

    # ------------------------------------------------------------ waiting

    def _block(
        self,
        seen: int,
        deadline: float | None,
        on_deadlock: Callable[[], BaseException] | None,
        began: float,
    ) -> float:
        pause = self.pause(deadline)
        if pause is None and not any(loop.may_hear() for loop in list(self.loops.values())):
            others = self._other_threads()
            if not others and on_deadlock is not None:
                raise on_deadlock()
            pause = THREAD_CHECK_INTERVAL_S
            if others and time.monotonic() - began > WAIT_WARNING_S:
                names = ", ".join(thread.name for thread in others)
                logging.getLogger("skate").warning("Still waiting for other threads: %s.", names)
                began = time.monotonic()
        me = threading.get_ident()
        self._open()
        self._blocked.add(me)
        try:
            with self.lock:
                first = self._poller == 0
                if first:
                    self._poller = me
            if first:
                self._poll(0 if self._changes != seen else pause)
            else:
                with self._changed:
                    if self._changes == seen:
                        self._changed.wait(pause)
        finally:
            if self._poller == me:
                self._poller = 0
            self._blocked.discard(me)
        return began

    def pause(self, deadline: float | None = None) -> float | None:
        """Return the seconds until the next timer or the deadline; None without either."""
        times = [
            loop.timer for loop in list(self.loops.values()) if loop.timer is not None and not loop.thread
        ]
        if deadline is not None:
            times.append(deadline)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _poll(self, timeout: float | None) -> None:
        """Wait for I/O of event loops, or for a wake-up by another thread."""
        if self._selector is None:
            return
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                key.data.due = True
            elif self._poller in (0, threading.get_ident()) and self._wakers is not None:
                try:
                    self._wakers[0].recv(4096)
                except BlockingIOError:  # another thread was first
                    pass

    def _other_threads(self) -> list[threading.Thread]:
        """Return the other threads that might still end the wait."""
        frames = sys._current_frames()
        return [
            thread
            for thread in threading.enumerate()
            if thread is not threading.current_thread()
            and thread.ident not in self._blocked
            and not getattr(thread, "is_pydev_daemon_thread", False)  # the debugger of an IDE
            and not thread.name.startswith(THREAD_PREFIX)
            and not is_background_thread(thread)
            and _is_at_work(thread, frames.get(thread.ident or 0))
        ]

    # ------------------------------------------------------------ event loops

    def _open(self) -> selectors.BaseSelector:
        with self.lock:
            if self._selector is None:
                self._wakers = socket.socketpair()
                for end in self._wakers:
                    end.setblocking(False)
                self._selector = selectors.DefaultSelector()
                self._selector.register(self._wakers[0], selectors.EVENT_READ, None)
            return self._selector

    def listen(self, loop: ActorLoop, descriptor: int) -> None:
        """Watch the I/O of an event loop."""
        self._open().register(descriptor, selectors.EVENT_READ, loop)

    def ignore(self, descriptor: int) -> None:
        """Stop watching the I/O of an event loop, which runs and polls by itself."""
        assert self._selector is not None
        self._selector.unregister(descriptor)

    def fileno(self) -> int:
        """Return a descriptor that is readable when an event loop has I/O."""
        selector = self._open()
        assert isinstance(selector, selectors.DefaultSelector)
        return selector.fileno()

    def close(self) -> None:
        """Close the selector and its sockets."""
        self._work.clear()
        self.streams.clear()
        if self._selector is not None and self._wakers is not None:
            self._selector.close()
            for end in self._wakers:
                end.close()
            self._selector = self._wakers = None


def _is_at_work(thread: threading.Thread, frame: FrameType | None) -> bool:
    """Return whether a thread runs code outside of Python's library, or will: a timer, or work of a pool."""
    innermost = frame
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_LIBRARY, "<frozen ")) or "site-packages" in code.co_filename:
            return True
        if is_pool_worker(frame):
            return not rests_in_pool(innermost)
        frame = frame.f_back
    return isinstance(thread, threading.Timer)


def deadlock_error(what: str, reasons: Sequence[str]) -> exceptions.DeadlockError:
    """Return the error for a deadlock of a wait for `what`, with the chain of its reasons."""
    lines = [
        f"{what} would wait forever, a deadlock: nothing is left in this process that could make it ready."
    ]
    lines += [f"  {reason}" for reason in reasons]
    return exceptions.DeadlockError("\n".join([*lines, _RULE]))


def is_deadlock(error: BaseException) -> bool:
    """Return whether an error is, or was caused by, a deadlock; a retry would not help."""
    return isinstance(root_cause(error), exceptions.DeadlockError)
