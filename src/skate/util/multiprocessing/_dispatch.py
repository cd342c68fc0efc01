"""Send a pool's chunks to its actors and take in what comes back.

Everyone who touches a pool helps: whoever submits work or waits for a result sends chunks out and takes
results in. A thread of the pool's own does the same while nobody waits, and runs the users' callbacks.
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
    """Report that a pool was terminated before the work was done."""


class _Flight:
    """A call that an actor has, or is about to get."""

    __slots__ = ("actor", "chunks", "has_landed", "ref", "slot", "watchers")

    def __init__(self, slot: Slot, chunks: list[Chunk]) -> None:
        self.slot = slot
        self.chunks = chunks
        self.actor: Any = None
        self.ref: Any = None
        self.has_landed = False
        self.watchers = 0  # how many threads look out for it


class _Stop:
    """Tells the pool's thread to end."""


class Dispatcher:
    """Send chunks to actors and hand what comes back to the jobs.

    Args:
        new_actor: Makes an actor.
        size: How many actors to keep.
        max_chunks: How many chunks an actor runs before it is replaced; None for any number.
    """

    def __init__(self, new_actor: Callable[[], Any], size: int, max_chunks: int | None) -> None:
        self.size = size
        self._new_actor = new_actor
        # Guards all below. Neither the engine nor a user's function is ever called with it held.
        self._changed = threading.Condition()
        self._slots = Slots(size, max_chunks)
        self._flights: set[_Flight] = set()
        self._retired: list[Any] = []  # actors to be stopped
        self._feeders: weakref.WeakSet[Any] = weakref.WeakSet()  # iterators that will submit more
        self._stopping: list[skate.ObjectRef[Any]] = []
        self._is_closed = False
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        # Filled from the engine's threads, without the lock.
        self._landed: deque[tuple[_Flight, list[Outcome | None] | Exception]] = deque()
        self._signals: queue.SimpleQueue[Callable[[], None] | _Stop | None] = queue.SimpleQueue()

    def start(self) -> list[Any]:
        """Make the actors and return them."""
        actors = [self._new_actor() for _ in range(self.size)]
        self._slots.fill(actors)
        return actors

    @property
    def is_closed(self) -> bool:
        """Whether the pool takes no new jobs."""
        return self._is_closed

    def submit(self, chunks: Iterable[Chunk]) -> None:
        """Send the chunks out, now or when their turn comes."""
        with self._changed:
            if self._is_stopped:
                raise ValueError("Pool not running")
            self._slots.deal(chunks)
        self.advance()
        with self._changed:
            if self._flights:
                self._need_thread()

    def keep_open_for(self, feeder: Any) -> None:
        """Let the iterator submit more chunks even after `close`, until `feeder_done` or its end."""
        with self._changed:
            self._feeders.add(feeder)

    def feeder_done(self, feeder: Any) -> None:
        """Note that the iterator will submit no more."""
        with self._changed:
            self._feeders.discard(feeder)
        self.advance()

    def advance(self) -> float | None:
        """Take in what has come back and send out what can go, without waiting.

        Returns:
            After how many seconds to do it again even if nothing comes back until then, or None.
        """
        while True:
            with self._changed:
                now = time.monotonic()
                self._take_in(now)
                chosen = self._slots.next(now)
                if chosen is not None:
                    self._flights.add(flight := _Flight(*chosen))
                retired, self._retired = self._retired, []
                if self._is_closed and not (self._flights or self._feeders or self._is_stopped):
                    self._is_stopped = True
                    retired += self._slots.take_actors()
                    self._signals.put(_Stop())
                    self._changed.notify_all()
                pause = self._slots.seconds_to_next(now)
            if retired and skate.is_initialized():
                self._stopping.extend(actor.stop.remote() for actor in retired)
            if chosen is None:
                return pause
            self._launch(flight)

    def wait_for(self, poll: Callable[[], T | None], timeout: float | None = None) -> T | None:
        """Wait until `poll` returns something and return that; return None after `timeout` seconds.

        `poll` is called with the lock held. Waiting happens in `skate.wait`: so the engine knows that a
        task which waits for a pool is blocked, and lends its CPU to others.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        watched: set[_Flight] = set()
        try:
            while True:
                self.advance()
                with self._changed:
                    if (result := poll()) is not None:
                        return result
                    # Together with the flights: another thread may have taken in one of them since.
                    pause = self._slots.seconds_to_next(time.monotonic())
                    if deadline is not None:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            return None
                        pause = left if pause is None else min(left, pause)
                    flights = {flight for flight in self._flights if flight.ref is not None}
                    for flight in flights - watched:
                        flight.watchers += 1
                    watched |= flights
                    # One that another thread is about to send may be ours, and cannot be waited for yet.
                    is_complete = len(flights) == len(self._flights)
                    if not (flights and is_complete) and not self._landed:
                        self._changed.wait(pause)
                if flights and is_complete and not self._landed:
                    self._wait_for_any(flights, pause)
        finally:
            with self._changed:
                for flight in watched:
                    flight.watchers -= 1
            if self._landed:
                self._signals.put(None)

    def _wait_for_any(self, flights: Iterable[_Flight], timeout: float | None) -> None:
        by_ref = {flight.ref: flight for flight in flights}
        ready, _ = skate.wait(list(by_ref), num_returns=1, timeout=timeout)
        for ref in ready:
            flight = by_ref[ref]
            if not flight.has_landed:  # The engine's call may still be under way to us.
                self._land(flight, _result_of(functools.partial(skate.get, ref)))

    def close(self) -> None:
        """Take no new jobs, and stop once the old ones are done."""
        with self._changed:
            self._is_closed = True
        self.advance()

    def terminate(self) -> None:
        """Stop at once: kill the actors and fail all jobs under way."""
        with self._changed:
            self._is_closed = True
            if self._is_stopped:
                return
            self._is_stopped = True
            actors = self._slots.take_actors()
            unfinished = [chunk for flight in self._flights for chunk in flight.chunks]
            unfinished += self._slots.take_chunks()
            self._flights.clear()
            self._landed.clear()
            self._feeders.clear()
            error = PoolTerminatedError("the pool was terminated before this work was done")
            for chunk in unfinished:
                self._deliver(chunk, error)
            self._signals.put(_Stop())
            self._changed.notify_all()
        if skate.is_initialized():
            for actor in actors:
                skate.kill(actor)

    def join(self) -> None:
        """Wait until all jobs are done and the actors have ended. The dispatcher must be closed."""
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
        """Stop because nobody can use the pool any more. Safe to call from a finalizer."""
        # A finalizer can run anywhere, also inside of a block that holds the lock.
        self._signals.put(self.terminate)

    def _take_in(self, now: float) -> None:
        has_news = bool(self._landed)
        while self._landed:
            flight, result = self._landed.popleft()
            if flight not in self._flights:
                continue  # The pool was terminated meanwhile.
            self._flights.remove(flight)
            slot = flight.slot
            if isinstance(result, Exception) and _means_death(result) and slot.actor is flight.actor:
                slot.actor = None
            retired = self._slots.landed(slot, flight.chunks[0].job.pace, now)
            if retired is not None:
                self._retired.append(retired)
            self._take_in_chunks(flight, result)
        if has_news:
            self._changed.notify_all()

    def _take_in_chunks(self, flight: _Flight, result: list[Outcome | None] | Exception) -> None:
        slot = flight.slot
        if isinstance(result, Exception):
            if flight.ref is None and len(flight.chunks) > 1:
                # It could not be sent. Find out which chunk's fault that is.
                for chunk in reversed(flight.chunks):
                    chunk.is_alone = True
                    slot.queue.appendleft(chunk)
                return
            for chunk in flight.chunks:
                self._deliver(chunk, result)
            return
        for chunk, outcome in zip(flight.chunks, result, strict=True):
            if outcome is None:  # The actor has forgotten the function.
                slot.known.clear()
                slot.queue.appendleft(chunk)
            else:
                chunk.job.pace.record(outcome[2])
                self._deliver(chunk, outcome)

    def _deliver(self, chunk: Chunk, result: Outcome | Exception) -> None:
        callback = chunk.job.deliver(chunk.index, result)
        if callback is not None:
            self._signals.put(functools.partial(self._run_callback, chunk.job, callback))
            self._need_thread()

    def _launch(self, flight: _Flight) -> None:
        slot = flight.slot
        try:
            if slot.actor is None:
                self._replace_actor(slot)
            flight.actor = slot.actor
            ref = flight.actor.run.remote([_as_sent(chunk, slot) for chunk in flight.chunks])
        except Exception as error:  # an argument that cannot be sent is its chunk's failure, not the pool's
            self._land(flight, error.with_traceback(None))
            with self._changed:
                self._changed.notify_all()
            return
        # Noted only now: who sees it sends its own call behind this one.
        slot.known.extend({chunk.job.number for chunk in flight.chunks}.difference(slot.known))
        with self._changed:
            flight.ref = ref
            self._changed.notify_all()
        ref.future().add_done_callback(lambda future: self._land(flight, _result_of(future.result)))

    def _replace_actor(self, slot: Slot) -> None:
        actor = self._new_actor()
        with self._changed:
            if not self._is_stopped:
                slot.known.clear()
                slot.actor = actor
                return
        skate.kill(actor)
        raise PoolTerminatedError("the pool was terminated before this work was done")

    def _land(self, flight: _Flight, result: list[Outcome | None] | Exception) -> None:
        flight.has_landed = True
        if self._is_stopped:
            return
        self._landed.append((flight, result))
        # In this order: a watcher first stops watching and then looks whether anything has landed. And a
        # thread that is started later looks first thing.
        if not flight.watchers and self._thread is not None:
            self._signals.put(None)

    def _need_thread(self) -> None:
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
        except Exception:  # there is nobody to raise it to
            logger.exception("a callback given to Pool failed")
        with self._changed:
            job.finish()
            self._changed.notify_all()


def _as_sent(chunk: Chunk, slot: Slot) -> Part:
    job = chunk.job
    function = None if job.number in slot.known else job.function
    return job.number, function, job.manner, chunk.items


def _result_of(get: Callable[[], list[Outcome | None]]) -> list[Outcome | None] | Exception:
    try:
        return get()
    except Exception as error:
        # Its traceback would keep alive all that the thread, which happened to receive it, was doing.
        return error.with_traceback(None)


def _means_death(error: Exception) -> bool:
    """Return whether the error says that the actor of the call is gone for good."""
    # A task error can have the type of an actor error: then the call failed because of some other actor.
    return isinstance(error, RayActorError) and not isinstance(error, ActorUnavailableError | RayTaskError)
