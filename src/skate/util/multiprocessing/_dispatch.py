"""Dispatch of the chunks of a pool to its actors, and collection of the results.

Every thread that submits work or waits for a result also sends chunks and collects results. A thread of the pool does
so while no other thread waits, and runs the callbacks of the user.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import skate
from skate.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
from skate.util.multiprocessing._job import Chunk, Job
from skate.util.multiprocessing._slots import Slot, Slots
from skate.util.multiprocessing._worker import Outcome, Part

T = TypeVar("T")

logger = logging.getLogger("skate.util.multiprocessing")


class PoolTerminatedError(RayError):
    """Report that a pool was terminated before the work was finished."""


class _RunningCall:
    """A call that was sent, or is about to be sent, to an actor."""

    __slots__ = ("actor", "chunks", "is_finished", "ref", "slot", "watchers")

    def __init__(self, slot: Slot, chunks: list[Chunk]) -> None:
        self.slot = slot
        self.chunks = chunks
        self.actor: Any = None
        self.ref: Any = None
        self.is_finished = False
        self.watchers = 0  # number of threads that wait for it


class _Stop:
    """A message that ends the thread of the pool."""


class Dispatcher:
    """Send chunks to actors and pass the results to the jobs.

    Args:
        new_actor: Function that creates an actor.
        size: Number of actors.
        max_chunks: Number of chunks after which an actor is replaced; None for any number.
    """

    def __init__(self, new_actor: Callable[[], Any], size: int, max_chunks: int | None) -> None:
        self.size = size
        self._new_actor = new_actor
        # Guards all fields below. Neither the engine nor user code is called while it is held.
        self._changed = threading.Condition()
        self._slots = Slots(size, max_chunks)
        self._running_calls: set[_RunningCall] = set()
        self._retired: list[Any] = []  # actors to be stopped
        self._feeders: weakref.WeakSet[Any] = weakref.WeakSet()  # iterators that will submit more
        self._stopping: list[skate.ObjectRef[Any]] = []
        self._is_closed = False
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        # Filled from threads of the engine, without the lock.
        self._finished_calls: deque[tuple[_RunningCall, list[Outcome | None] | Exception]] = deque()
        self._signals: queue.SimpleQueue[Callable[[], None] | _Stop | None] = queue.SimpleQueue()

    def start(self) -> list[Any]:
        """Create the actors and return them."""
        actors = [self._new_actor() for _ in range(self.size)]
        self._slots.fill(actors)
        return actors

    @property
    def is_closed(self) -> bool:
        """Whether the pool is closed to new jobs."""
        return self._is_closed

    def submit(self, chunks: Iterable[Chunk]) -> None:
        """Queue the chunks and send those that can be sent."""
        with self._changed:
            if self._is_stopped:
                raise ValueError("Pool not running")
            self._slots.assign(chunks)
        self.advance()
        with self._changed:
            if self._running_calls:
                self._ensure_thread()

    def keep_open_for(self, feeder: Any) -> None:
        """Allow the iterator to submit more chunks after `close`, until `feeder_done` or its end."""
        with self._changed:
            self._feeders.add(feeder)

    def feeder_done(self, feeder: Any) -> None:
        """Record that the iterator will submit no more chunks."""
        with self._changed:
            self._feeders.discard(feeder)
        self.advance()

    def advance(self) -> float | None:
        """Collect available results and send chunks, without waiting.

        Returns:
            Seconds after which to call it again even without new results, or None.
        """
        while True:
            with self._changed:
                now = time.monotonic()
                self._collect_results(now)
                chosen = self._slots.next(now)
                if chosen is not None:
                    self._running_calls.add(call := _RunningCall(*chosen))
                retired, self._retired = self._retired, []
                if self._is_closed and not (self._running_calls or self._feeders or self._is_stopped):
                    self._is_stopped = True
                    retired += self._slots.take_actors()
                    self._signals.put(_Stop())
                    self._changed.notify_all()
                pause = self._slots.seconds_to_next(now)
            if retired and skate.is_initialized():
                self._stopping.extend(actor.stop.remote() for actor in retired)
            if chosen is None:
                return pause
            self._send(call)

    def wait_for(self, poll: Callable[[], T | None], timeout: float | None = None) -> T | None:
        """Wait until `poll` returns a value and return it; return None after `timeout` seconds.

        `poll` is called with the lock held. Waiting happens in `skate.wait`, so that the engine knows that a task which
        waits for a pool is blocked, and lends its CPU to others.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        watched: set[_RunningCall] = set()
        try:
            while True:
                self.advance()
                with self._changed:
                    if (result := poll()) is not None:
                        return result
                    # Read together with the calls: another thread may have collected one of them since.
                    pause = self._slots.seconds_to_next(time.monotonic())
                    if deadline is not None:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            return None
                        pause = left if pause is None else min(left, pause)
                    calls = {call for call in self._running_calls if call.ref is not None}
                    for call in calls - watched:
                        call.watchers += 1
                    watched |= calls
                    # A call that another thread is about to send may be needed, but cannot be waited for yet.
                    is_complete = len(calls) == len(self._running_calls)
                    if not (calls and is_complete) and not self._finished_calls:
                        self._changed.wait(pause)
                if calls and is_complete and not self._finished_calls:
                    self._wait_for_any(calls, pause)
        finally:
            with self._changed:
                for call in watched:
                    call.watchers -= 1
            if self._finished_calls:
                self._signals.put(None)

    def _wait_for_any(self, calls: Iterable[_RunningCall], timeout: float | None) -> None:
        by_ref = {call.ref: call for call in calls}
        ready, _ = skate.wait(list(by_ref), num_returns=1, timeout=timeout)
        for ref in ready:
            call = by_ref[ref]
            if not call.is_finished:  # the notification of the engine may still be pending
                self._finish_call(call, _result_of(functools.partial(skate.get, ref)))

    def close(self) -> None:
        """Reject new jobs, and stop once the existing ones are finished."""
        with self._changed:
            self._is_closed = True
        self.advance()

    def terminate(self) -> None:
        """Stop immediately: kill the actors and fail all pending jobs."""
        with self._changed:
            self._is_closed = True
            if self._is_stopped:
                return
            self._is_stopped = True
            actors = self._slots.take_actors()
            unfinished = [chunk for call in self._running_calls for chunk in call.chunks]
            unfinished += self._slots.take_chunks()
            self._running_calls.clear()
            self._finished_calls.clear()
            self._feeders.clear()
            error = PoolTerminatedError("the pool was terminated before this work was finished")
            for chunk in unfinished:
                self._deliver(chunk, error)
            self._signals.put(_Stop())
            self._changed.notify_all()
        if skate.is_initialized():
            for actor in actors:
                skate.kill(actor)

    def join(self) -> None:
        """Wait until all jobs are finished and the actors have ended. The dispatcher must be closed."""
        for feeder in list(self._feeders):
            feeder.feed_all()
        self.wait_for(lambda: self._is_stopped or None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._stopping and skate.is_initialized():
            skate.wait(self._stopping, num_returns=len(self._stopping))
            self._stopping.clear()

    def abandon(self) -> None:
        """Stop because the pool is unreachable. Safe to call from a finalizer."""
        # A finalizer can run anywhere, even inside a block that holds the lock.
        self._signals.put(self.terminate)

    def _collect_results(self, now: float) -> None:
        has_news = bool(self._finished_calls)
        while self._finished_calls:
            call, result = self._finished_calls.popleft()
            if call not in self._running_calls:
                continue  # the pool was terminated in the meantime
            self._running_calls.remove(call)
            slot = call.slot
            if isinstance(result, Exception) and _is_actor_death(result) and slot.actor is call.actor:
                slot.actor = None
            retired = self._slots.finish_call(slot, call.chunks[0].job.pace, now)
            if retired is not None:
                self._retired.append(retired)
            self._collect_chunks(call, result)
        if has_news:
            self._changed.notify_all()

    def _collect_chunks(self, call: _RunningCall, result: list[Outcome | None] | Exception) -> None:
        slot = call.slot
        if isinstance(result, Exception):
            if call.ref is None and len(call.chunks) > 1:
                # The call could not be sent. Determine which chunk is the cause.
                for chunk in reversed(call.chunks):
                    chunk.is_alone = True
                    slot.queue.appendleft(chunk)
                return
            for chunk in call.chunks:
                self._deliver(chunk, result)
            return
        for chunk, outcome in zip(call.chunks, result, strict=True):
            if outcome is None:  # the actor has evicted the function
                slot.known.clear()
                slot.queue.appendleft(chunk)
            else:
                chunk.job.pace.record(outcome[2])
                self._deliver(chunk, outcome)

    def _deliver(self, chunk: Chunk, result: Outcome | Exception) -> None:
        callback = chunk.job.deliver(chunk.index, result)
        if callback is not None:
            self._signals.put(functools.partial(self._run_callback, chunk.job, callback))
            self._ensure_thread()

    def _send(self, call: _RunningCall) -> None:
        slot = call.slot
        try:
            if slot.actor is None:
                self._replace_actor(slot)
            call.actor = slot.actor
            ref = call.actor.run.remote([_to_part(chunk, slot) for chunk in call.chunks])
        except Exception as error:  # an argument that cannot be sent fails its chunk, not the pool
            self._finish_call(call, error.with_traceback(None))
            with self._changed:
                self._changed.notify_all()
            return
        # Recorded only now: a thread that sees it sends its own call after this one.
        slot.known.extend({chunk.job.number for chunk in call.chunks}.difference(slot.known))
        with self._changed:
            call.ref = ref
            self._changed.notify_all()
        ref.future().add_done_callback(lambda future: self._finish_call(call, _result_of(future.result)))

    def _replace_actor(self, slot: Slot) -> None:
        actor = self._new_actor()
        with self._changed:
            if not self._is_stopped:
                slot.known.clear()
                slot.actor = actor
                return
        skate.kill(actor)
        raise PoolTerminatedError("the pool was terminated before this work was finished")

    def _finish_call(self, call: _RunningCall, result: list[Outcome | None] | Exception) -> None:
        call.is_finished = True
        if self._is_stopped:
            return
        self._finished_calls.append((call, result))
        # The order matters: a waiter first unregisters and then checks for finished calls, and a thread that is started
        # later checks first.
        if not call.watchers and self._thread is not None:
            self._signals.put(None)

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="skate-pool", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            pause = self.advance()
            try:
                signal = self._signals.get(timeout=pause)
            except queue.Empty:
                continue
            if isinstance(signal, _Stop):
                return
            if signal is not None:
                signal()

    def _run_callback(self, job: Job, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # there is no caller to raise it to
            logger.exception("a callback of Pool failed")
        with self._changed:
            job.finish()
            self._changed.notify_all()


def _to_part(chunk: Chunk, slot: Slot) -> Part:
    job = chunk.job
    function = None if job.number in slot.known else job.function
    return job.number, function, job.manner, chunk.items


def _result_of(get: Callable[[], list[Outcome | None]]) -> list[Outcome | None] | Exception:
    try:
        return get()
    except Exception as error:
        # Its traceback would keep the frames of the receiving thread alive.
        return error.with_traceback(None)


def _is_actor_death(error: Exception) -> bool:
    """Return whether the error means that the actor of the call is dead."""
    # A task error can have the type of an actor error: then the call failed because of another actor.
    return isinstance(error, RayActorError) and not isinstance(error, ActorUnavailableError | RayTaskError)
