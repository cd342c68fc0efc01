"""The event loop of an asynchronous actor, which runs until it would wait.

Each such actor has an ordinary asyncio loop with a special selector: instead of blocking, it records what the loop
waits for and stops the loop. So loops can be nested: a coroutine that calls `skate.get` blocks its own loop, as it
would in a process, while the loops of other actors continue.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any

from skate._engine.common.signals import SignalExit
from skate._engine.inline.progress import THREAD_PREFIX, Progress

MAX_TURNS = 100  # turns of a busy loop before other loops run
MAX_CANCEL_ROUNDS = 10  # attempts to end cancelled coroutines


class ActorLoop:
    """An event loop, and what it is waiting for."""

    def __init__(
        self,
        progress: Progress,
        scope: Callable[[], AbstractContextManager[None]],
        on_exit: Callable[[SystemExit], None],
    ) -> None:
        self._progress = progress
        self._scope = scope
        self._on_exit = on_exit
        self._interrupt: BaseException | None = None
        self._selector = _Selector(self)
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._jobs = _ThreadPool()
        self.loop.set_default_executor(self._jobs)
        self.thread = 0  # the thread that runs it; 0 for none
        self.due = False
        self.timer: float | None = None  # when its next timer is due
        self.turns = 0
        self._closing = False
        progress.loops[self.loop] = self
        progress.listen(self, self._selector.fileno())

    def spawn(
        self,
        coroutine: Coroutine[Any, Any, None],
        context: Context,
        spawned: Callable[[asyncio.Task[None]], None] = lambda _: None,
    ) -> None:
        """Start a coroutine at the loop's next turn; call `spawned` with its task."""

        def create() -> None:
            spawned(self.loop.create_task(coroutine, context=context))

        if self.thread in (0, threading.get_ident()):
            create()
        else:
            self.loop.call_soon_threadsafe(create)
        self.due = True

    def can_run(self, now: float) -> bool:
        """Return whether the loop has work, and no thread runs it."""
        return not self.thread and (self.due or (self.timer is not None and self.timer <= now))

    def may_hear(self) -> bool:
        """Return whether I/O or a job in a thread may give the loop work."""
        watched = len(self._selector.get_map()) - 1  # one is the socket by which threads wake the loop
        return not self.thread and (watched > 0 or self._jobs.running > 0)

    def run(self) -> bool:
        """Run the loop until it would wait; return whether it ran."""
        progress = self._progress
        with progress.lock:
            if self.thread or self.loop.is_closed():
                return False
            self.thread = threading.get_ident()
            self.due = False
        descriptor = self._selector.fileno()
        progress.ignore(descriptor)
        self.turns = 0
        # From here until `thread` is 0 again, no other thread uses the loop or its registration.
        try:
            with self._scope():
                self.loop.run_forever()
        except SignalExit:
            raise
        except SystemExit as error:  # of a coroutine that the actor started by itself
            self._on_exit(error)
        finally:
            progress.listen(self, descriptor)
            self.thread = 0
            if self._closing:
                self.close()
            elif self.due:
                progress.changed()  # for threads that could not run it meanwhile
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt
        return True

    def interrupt(self, error: BaseException) -> None:
        """Stop the loop, and raise `error` in the code that runs it; asyncio would swallow some exceptions."""
        self._interrupt = error
        self.due = True
        self.loop.stop()

    def pause_until(self, timeout: float | None) -> None:
        """Stop the loop, which has no work for `timeout` seconds."""
        self.timer = None if timeout is None else time.monotonic() + timeout
        self.loop.stop()

    def count_turn(self) -> None:
        """Count a turn of the loop, and stop it after many."""
        self.turns += 1
        if self.turns >= MAX_TURNS:
            self.due = True
            self.loop.stop()

    def close(self) -> None:
        """End all coroutines and close the loop; later if it is running."""
        self._closing = True
        if self.thread or self.loop.is_closed():
            return
        self._closing = False
        for _ in range(MAX_CANCEL_ROUNDS):
            tasks = asyncio.all_tasks(self.loop)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.run()
        self.spawn(self.loop.shutdown_asyncgens(), Context())
        self.run()
        self._progress.ignore(self._selector.fileno())
        self._progress.loops.pop(self.loop, None)
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self.loop.close()


class _Selector(selectors.DefaultSelector):
    """Polls for I/O without blocking."""

    def __init__(self, owner: ActorLoop) -> None:
        super().__init__()
        self._owner = owner

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            self._owner.count_turn()
        else:
            self._owner.pause_until(timeout)
        return events


class _ThreadPool(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread` and `run_in_executor`, with a count of running jobs."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix=THREAD_PREFIX)
        self.running = 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.running += 1
        future = super().submit(function, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: Future[Any]) -> None:
        self.running -= 1
