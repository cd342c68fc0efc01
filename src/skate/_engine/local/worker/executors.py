"""Executors of an actor's calls: in order in the main thread, in threads, or in an event loop.

Each concurrency group of an actor has its own executor, so that a call that blocks one group does not delay another.
"""

from __future__ import annotations

import queue
import selectors
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from skate._base.serialization import loads
from skate._engine.common.process_limits import start_thread
from skate._engine.local.client.task_context import TaskContext
from skate._engine.local.client.wait_reports import Activity
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection
from skate._engine.local.wire.hub import Hub

MAX_TURNS = 100  # turns of a busy event loop before waiting calls start anyway
_NO_OPTIONS: dict[str, Any] = {"retry": False, "window": 0, "per_yield": 1}


class IncomingCall:
    """A call, and the connection that it arrived on."""

    __slots__ = (
        "call", "cancelled", "connection", "context", "loop", "name", "options", "recorded", "started", "task",
    )  # fmt: skip

    def __init__(
        self, call: m.Call, connection: Connection, class_name: str, *, recorded: bool = True
    ) -> None:
        self.call = call
        self.connection = connection
        self.cancelled = False
        self.started = 0.0
        self.context: TaskContext | None = None
        self.task: Any = None  # the asyncio task that runs it, and its loop
        self.loop: Any = None
        self.options: dict[str, Any] = loads(call.options) if call.options else _NO_OPTIONS
        self.name: str = self.options.get("name") or f"{class_name}.{call.method}"
        self.recorded: bool = self.options.get("events", recorded)  # whether the state API lists it

    def fill(self, result: m.Result) -> list[m.Result]:
        """Return a result once for each return value of the call."""
        return [result] * max(1, self.call.num_returns)


class Executor(Protocol):
    """Runs the calls of one concurrency group."""

    @property
    def size(self) -> int:
        """The number of calls that run concurrently."""

    def put(self, incoming: Any) -> None:
        """Run a call in its turn."""

    def busy(self) -> bool:
        """Return whether calls are waiting or running."""

    def close(self) -> None:
        """End idle threads."""


class MainThreadExecutor:
    """Runs the calls of a plain actor in order, in the main thread."""

    def __init__(self) -> None:
        self.calls: deque[Any] = deque()
        self.put = self.calls.append

    @property
    def size(self) -> int:
        """The number of calls that run concurrently."""
        return 1

    def busy(self) -> bool:
        """Return whether calls are waiting."""
        return bool(self.calls)

    def close(self) -> None:
        """Do nothing: the executor has no thread."""


class ThreadExecutor:
    """Runs calls in a fixed number of threads, which live as long as the actor because users keep data in them."""

    def __init__(self, run: Callable[[Any], None], size: int, on_idle: Callable[[], None]) -> None:
        self._run = run
        self.size = size
        self._on_idle = on_idle
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._lock = threading.Lock()

    def put(self, incoming: Any) -> None:
        """Run a call as soon as a thread is free."""
        with self._lock:
            self._unfinished += 1
            if self._unfinished > len(self._threads) and len(self._threads) < self.size:
                self._add_thread()
        self._queue.put(incoming)

    def _add_thread(self) -> None:
        name = f"skate-call-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            start_thread(thread)
        except OSError:
            if not self._threads:
                raise
            return  # the system allows no further thread: the existing ones share the calls
        self._threads.append(thread)

    def _work(self) -> None:
        while True:
            incoming = self._queue.get()
            if incoming is None:
                return
            try:
                self._run(incoming)
            finally:
                with self._lock:
                    self._unfinished -= 1
                self._on_idle()

    def busy(self) -> bool:
        """Return whether calls are waiting or running."""
        return self._unfinished > 0

    def threads(self) -> set[int]:
        """Return the threads of the executor."""
        return {thread.ident or 0 for thread in list(self._threads)}

    def close(self) -> None:
        """End idle threads."""
        for _ in self._threads:
            self._queue.put(None)


class _BeforeSelect(Protocol):
    def __call__(self, *, is_idle: bool) -> bool: ...


class _Selector(selectors.DefaultSelector):
    """Calls a function before each turn of an event loop, to start waiting calls."""

    def __init__(self, before_select: _BeforeSelect) -> None:
        super().__init__()
        self._before_select = before_select

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        is_idle = timeout is None or timeout > 0
        return super().select(0 if self._before_select(is_idle=is_idle) else timeout)


class LoopExecutor:
    """Runs the calls of an asyncio actor concurrently in an event loop.

    Without concurrency groups, the loop runs in the main thread and reads the sockets itself, which saves a switch
    between threads per call. With groups, each group has a loop in its own thread.

    At most `size` calls run at a time. A call that had to wait for a free slot starts when no coroutine of the loop is
    ready, so that calls which are already awake continue first; at the latest after `MAX_TURNS` turns of the loop.
    """

    def __init__(
        self,
        run: Callable[[Any], Coroutine[Any, Any, None]],
        size: int,
        on_idle: Callable[[], None],
        on_cancelled: Callable[[Any], None],
    ) -> None:
        import asyncio

        self._run = run
        self._on_cancelled = on_cancelled
        self._on_idle = on_idle
        self._begun = 0  # counted by the reading thread
        self._over = 0  # counted in the loop
        self.size = size
        self._running = 0
        self._waiting: deque[Any] = deque()  # calls without a slot, in order
        self._turns = 0  # turns of the loop since a slot became free for a waiting call
        self._in_thread = False
        self.thread = 0  # the thread that runs the loop
        self.loop = asyncio.SelectorEventLoop(_Selector(self._before_select))
        self._stop: asyncio.Future[None] | None = None

    def put(self, incoming: Any) -> None:
        """Start a call, or queue it for a free slot."""
        self._begun += 1
        if self.thread == threading.get_ident():
            self._admit(incoming)
        else:
            self.loop.call_soon_threadsafe(self._admit, incoming)

    def futures(self) -> set[Any]:
        """Return the future that the loop waits for until its end."""
        return set() if self._stop is None else {self._stop}

    @property
    def is_starting_call(self) -> bool:
        """Whether a call that waited for a slot is about to start."""
        return bool(self._waiting) and self._running < self.size

    def on_await(self, watch: Callable[[Any], None]) -> Callable[[], None]:
        """Return a function that calls `watch` with the loop, if called in the loop's thread."""

        def awaited() -> None:
            if self.thread == threading.get_ident():
                watch(self.loop)

        return awaited

    def _admit(self, incoming: Any) -> None:
        if self._running < self.size and not self._waiting:
            self._start(incoming)
        else:
            self._waiting.append(incoming)

    def _before_select(self, *, is_idle: bool) -> bool:
        """Start waiting calls if the loop is idle; return whether it has work now."""
        if not self.is_starting_call:
            return not is_idle
        self._turns += 1
        if is_idle or self._turns > MAX_TURNS:
            self._turns = 0
            while self._waiting and self._running < self.size:
                self._start(self._waiting.popleft())
        return True

    def _start(self, incoming: Any) -> None:
        self._running += 1
        incoming.task = self.loop.create_task(self._run(incoming))
        incoming.task.add_done_callback(lambda task: self._ended(incoming, task))
        incoming.loop = self.loop

    def _ended(self, incoming: Any, task: Any) -> None:
        self._over += 1
        self._running -= 1
        if task.cancelled():  # before it started: a running call replies by itself
            self._on_cancelled(incoming)
        elif task.exception() is not None:
            self.loop.call_exception_handler(
                {"message": "internal error in a call", "exception": task.exception()}
            )
        self._on_idle()

    def busy(self) -> bool:
        """Return whether calls are waiting or running."""
        return self._begun > self._over

    # ------------------------------------------------------------ in the main thread

    def serve(self, begin: Callable[[], Coroutine[Any, Any, bool]], hub: Hub) -> bool:
        """Run the loop in this thread until `finish`; `begin` creates the actor in it."""
        import asyncio

        asyncio.set_event_loop(self.loop)
        self.thread = threading.get_ident()

        async def main() -> bool:
            self._stop = self.loop.create_future()
            if not await begin():
                return False
            hub.join_loop(self.loop)
            await self._stop
            return True

        try:
            return self.loop.run_until_complete(main())
        finally:
            self._cancel_rest()

    def finish(self) -> None:
        """End `serve`."""

        def stop() -> None:
            if self._stop is not None and not self._stop.done():
                self._stop.set_result(None)

        if self._in_thread:
            self.loop.call_soon_threadsafe(self.loop.stop)
        else:
            self.loop.call_soon_threadsafe(stop)

    def _cancel_rest(self) -> None:
        import asyncio

        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    # ------------------------------------------------------------ in a thread

    def start_thread(self, name: str) -> None:
        """Run the loop in its own thread."""
        import asyncio

        self._in_thread = True

        def work() -> None:
            self.thread = threading.get_ident()
            asyncio.set_event_loop(self.loop)
            self.loop.run_forever()

        threading.Thread(target=work, name=f"skate-loop-{name}", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop of another thread; return its result."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def close(self) -> None:
        """Stop the loop's thread."""
        if self._in_thread:
            self.loop.call_soon_threadsafe(self.loop.stop)


def describe_executors(
    executors: Collection[Executor],
    executor_of: Callable[[m.Call], Executor | None],
    calls: dict[bytes, IncomingCall],
    waiting: set[bytes],
) -> Activity | None:
    """Return an actor's activity apart from the calls that wait; None while it runs code, or is about to."""
    running: dict[Executor, int] = dict.fromkeys(executors, 0)
    queued: dict[Executor, int] = dict.fromkeys(executors, 0)
    for incoming in list(calls.values()):
        executor = executor_of(incoming.call)
        if executor not in running or incoming.cancelled or incoming.call.num_returns == m.STREAMING:
            return None
        if isinstance(executor, LoopExecutor):
            running[executor] += 1  # the event loop knows which of them wait
        elif not incoming.started:
            queued[executor] += 1
        elif incoming.call.task in waiting:
            running[executor] += 1
        else:
            return None
    found = Activity(calls=calls)
    for executor in executors:
        if queued[executor] and running[executor] < executor.size:
            return None
        found.takes_calls = found.takes_calls or running[executor] + queued[executor] < executor.size
        if isinstance(executor, LoopExecutor):
            if found.loop is not None or executor.is_starting_call:
                return None
            found.loop, found.loop_thread = executor.loop, executor.thread
        elif isinstance(executor, ThreadExecutor):
            found.resting |= executor.threads()
    main = threading.main_thread().ident or 0
    in_main = [each for each in executors if isinstance(each, MainThreadExecutor) and running[each]]
    if not in_main and found.loop_thread != main:
        found.resting.add(main)
    return found


def find_groups(kind: type) -> dict[str, str]:
    """Return the concurrency groups that the methods of a class declare, by method."""
    found = {
        name: getattr(getattr(kind, name, None), "__ray_concurrency_group__", None) for name in dir(kind)
    }
    return {name: group for name, group in found.items() if group}
