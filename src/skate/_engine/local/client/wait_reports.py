"""The waits of a process, recorded while they last and reported when the node asks.

A report must never say that a process waits when it could continue by itself. So the process counts as active while a
thread runs outside of a recorded wait, an event loop has work, or something else could end a wait: a time-out, a timer
signal, or an item of a generator.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from skate._base.background_threads import background_threads
from skate._base.object_ref import ERROR, PENDING, ObjectRef
from skate._base.serialization import dumps
from skate._engine.common.threads import rests_in_pool
from skate._engine.local.client.task_context import current_task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.client.client import Client

STALL_TIMEOUT_S = 0.5  # seconds that a coroutine waits before the node is notified


class Wait:
    """A thread that waits for objects."""

    __slots__ = ("need", "number", "references", "task", "thread", "timed", "verdict")

    def __init__(self, number: int, references: Sequence[ObjectRef[Any]], need: int, timed: bool) -> None:
        running = current_task.get()
        self.number = number
        self.references = references
        self.need = need  # how many must become ready; 0 for a `get`, which the first error ends
        self.timed = timed
        self.task = running.task if running is not None else b""
        self.thread = threading.get_ident()
        self.verdict = ""  # why the wait would never end

    def row(self) -> tuple[int, bytes, int, list[bytes]] | None:
        """Return the wait as a row of a report; None if it is about to end."""
        pending = [reference._id for reference in self.references if reference._state == PENDING]
        need = self.need - (len(self.references) - len(pending)) if self.need else 1
        failed = not self.need and any(reference._state == ERROR for reference in self.references)
        ends = failed or need <= 0 or not pending or bool(self.verdict)
        return None if ends else (self.number, self.task, need, pending)


class Activity:
    """The activity of a worker apart from its waits."""

    __slots__ = ("calls", "loop", "loop_thread", "resting", "takes_calls")

    def __init__(self, resting: Iterable[int] = (), calls: Iterable[bytes] = ()) -> None:
        self.resting = set(resting)  # threads without work
        self.calls = list(calls)  # calls that an actor has yet to answer
        self.takes_calls = False  # whether an actor would run another call immediately
        self.loop: Any = None  # the event loop that runs an actor's calls
        self.loop_thread = 0


class OutstandingCalls:
    """Calls to actors without a reply."""

    __slots__ = ("cancelled", "sent", "unsent")

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.unsent: list[tuple[bytes, list[bytes], list[bytes]]] = []


class Waits:
    """The waits of a process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self._last = 0
        self._waits: dict[int, Wait] = {}
        self._watched: set[bytes] = set()  # objects that were awaited at the last check
        self._watching = False
        self._announced: set[bytes] = set()
        self._timer: Any = None
        # Of a worker: its activity apart from the tasks and calls that wait; None while it runs code.
        self.activity: Callable[[set[bytes]], Activity | None] = lambda _: Activity()
        self.outstanding: Callable[[], OutstandingCalls] = OutstandingCalls
        self.known_futures: Callable[[], set[Any]] = set  # futures of the event loop that only calls complete
        client.channel.handlers[m.WaitProbe] = self._probed
        client.channel.handlers[m.Deadlock] = self._end_one

    # ------------------------------------------------------------ threads

    def begin(self, references: Sequence[ObjectRef[Any]], need: int, *, timed: bool) -> Wait:
        """Record that this thread waits for objects."""
        self._last = number = next(self._numbers)
        wait = self._waits[number] = Wait(number, references, need, timed)
        return wait

    def end(self, wait: Wait) -> None:
        """Remove the record of a wait."""
        self._waits.pop(wait.number, None)

    # ------------------------------------------------------------ coroutines

    def watch(self, loop: Any) -> None:
        """Check after a while whether coroutines of this loop still wait. Called in the loop's thread."""
        if not self._watching:
            self._watching = True
            self._timer = loop.call_later(STALL_TIMEOUT_S, self._look, loop)

    def _look(self, loop: Any) -> None:
        client = self._client
        awaited = set(client.references.awaited())
        stalled = awaited & self._watched
        if stalled - self._announced and not client.channel.closed:
            client.channel.send(m.Stalled())
        self._announced = stalled
        self._watched = awaited
        self._watching = bool(awaited)
        self._timer = loop.call_later(STALL_TIMEOUT_S, self._look, loop) if awaited else None

    # ------------------------------------------------------------ messages of the node

    def _probed(self, message: m.WaitProbe) -> None:
        activity = self._activity()
        blocked = {wait.thread for wait in list(self._waits.values())}
        if activity is None or activity.loop is None or activity.loop_thread in blocked:
            self._report(message.round, activity is not None)
        else:
            # One turn later, because this call itself has made the loop's own socket readable.
            loop = activity.loop
            loop.call_soon_threadsafe(loop.call_soon, self._report_from_loop, message.round, loop)

    def _report_from_loop(self, round: int, loop: Any) -> None:
        client = self._client
        known = client.references.awaiting_futures() | self.known_futures()
        self._report(round, is_quiet(loop, client.channel.hub.descriptor, self._timer, known))

    def _activity(self) -> Activity | None:
        return self.activity({wait.task for wait in list(self._waits.values())})

    def _report(self, round: int, quiet: bool) -> None:
        client = self._client
        if client.channel.closed:
            return
        client.channel.hub.send_held_back()
        client.channel.flush_reports()
        activity = self._activity() if quiet else None
        rows = [None if wait.timed else wait.row() for wait in list(self._waits.values())]
        waits = [row for row in rows if row is not None]
        report = m.WaitReport(round, active=True, waits=waits, awaited=client.references.awaited())
        if activity is not None and len(waits) == len(rows) and not self._runs_code(activity):
            calls = self.outstanding()
            report = m.WaitReport(
                round,
                False,
                self._last + client.references.settled,
                waits,
                client.references.awaited(),
                activity.calls,
                activity.takes_calls,
                calls.sent,
                calls.cancelled,
                calls.unsent,
            )
        client.channel.send(report)

    def _runs_code(self, activity: Activity) -> bool:
        """Return whether a thread may act without a message, or without the end of a recorded wait."""
        client = self._client
        if signal.getitimer(signal.ITIMER_REAL)[0] or any(
            s.is_awaited() for s in list(client.references.streams.values())
        ):
            return True
        resting = {wait.thread for wait in list(self._waits.values())} | activity.resting
        resting |= {client.channel.hub.thread, *background_threads()}
        if activity.loop is not None:
            resting.add(activity.loop_thread)
        return any(
            ident not in resting and not rests_in_pool(frame)
            for ident, frame in sys._current_frames().items()
        )

    def _end_one(self, message: m.Deadlock) -> None:
        """Handle the node's verdict that a wait would never end."""
        wait = self._waits.get(message.wait)
        if wait is not None:
            wait.verdict = message.text
        reference = self._client.references.find_awaited(message.object)
        if reference is not None:
            from skate._base.errors import DeadlockError

            self._client.references.settle(reference, ERROR, dumps(DeadlockError(message.text)))


def is_quiet(loop: Any, descriptor: int, timer: Any, known: set[Any]) -> bool:
    """Return whether only a reference or a call can give an event loop work.

    Such a loop has no ready callback, no timer and no file but Skate's, and all its coroutines wait for each other or
    for `known` futures; another future could be completed by a thread that Python does not see. asyncio does not expose
    these attributes; a loop that lacks them is never quiet.
    """
    import asyncio

    try:
        timers = [handle for handle in loop._scheduled if handle is not timer and not handle.cancelled()]
        files = set(loop._selector.get_map()) - {descriptor, loop._ssock.fileno()}
        if loop._ready or timers or files:
            return False
        waited = [task._fut_waiter for task in asyncio.all_tasks(loop)]  # type: ignore[attr-defined]
        while waited:
            future = waited.pop()
            if isinstance(future, asyncio.tasks._GatheringFuture):  # type: ignore[attr-defined]
                waited += [child for child in future._children if not child.done()]
            elif future not in known and not isinstance(future, asyncio.Task):
                return False
    except AttributeError:
        return False
    return True
