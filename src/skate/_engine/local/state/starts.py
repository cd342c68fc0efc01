"""Starting workers: how many at once, and the errors of tasks and actors whose workers cannot start.

A worker can fail to start in two ways. It dies while it starts, which is likely to happen again: a few times in a row
fail what waits for it. Where something kills it from outside, tasks and actors that may be retried without end wait for
the next worker instead. Or the system refuses another process: then starts are attempted again, ever less often, and
what has waited for a while fails, unless workers of the same kind are there that will come to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from skate._engine.common import failures
from skate._engine.common.process_limits import FIRST_BACKOFF, LONGEST_BACKOFF, RETRY_SECONDS
from skate._engine.common.resources import Pool
from skate._engine.local.state.records import IDLE, LEASED, Actor, Key, Peer, SchedulingClass, Task

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

KILLED = -9  # the exit code after SIGKILL
MAX_START_FAILURES = 3  # workers of one kind that may die in a row while starting


class _Refusal:
    """The system has refused to start workers of one kind, and none has started since."""

    __slots__ = ("backoff", "last", "next", "since")

    def __init__(self, now: float) -> None:
        self.since = self.last = now
        self.backoff = FIRST_BACKOFF
        self.next: float | None = None  # when the next attempt is due; None: whenever it is of use


class Starts:
    """Counts the workers that are starting, by their kind."""

    def __init__(self, machine: Machine, max_workers: int) -> None:
        self._machine = machine
        self._max_workers = max_workers
        self._starting: dict[Key, int] = {}
        self._failures: dict[Key, int] = {}
        self._refusals: dict[Key, _Refusal] = {}

    # ------------------------------------------------------------ starting

    def begin_for(self, cls: SchedulingClass, pool: Pool) -> None:
        """Start as many workers as the queue of a class can use at once."""
        key = cls.key
        wanted = len(cls.queue)
        for name, amount in cls.request.items():
            wanted = min(wanted, max(1, pool.available.get(name, 0) // amount))
        wanted = min(wanted, self._max_workers)
        refusal = self._refusals.get(key)
        if refusal is not None:
            wanted = 1 if refusal.next is None else 0
        self.begin(key, wanted - self._starting.get(key, 0))

    def begin(self, key: Key, count: int) -> None:
        """Start workers of one kind."""
        for _ in range(count):
            self._starting[key] = self._starting.get(key, 0) + 1
            self._machine.start_worker(*key)

    def succeeded(self, peer: Peer) -> None:
        """A worker is ready."""
        self.ended(peer)
        self._failures.pop(peer.key, None)
        self._refusals.pop(peer.key, None)

    def ended(self, peer: Peer) -> None:
        """A worker does not count as starting any more."""
        left = self._starting.get(peer.key, 0) - 1
        if left > 0:
            self._starting[peer.key] = left
        else:
            self._starting.pop(peer.key, None)

    def forget(self, key: Key) -> None:
        """None of the workers of a kind that were starting will come."""
        self._starting.pop(key, None)

    def forget_job(self, job: bytes) -> None:
        """Drop what is kept for the workers of a job that ended."""
        self._failures = {key: count for key, count in self._failures.items() if key[0] != job}
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if key[0] != job}

    # ------------------------------------------------------------ failing

    def failed(self, peer: Peer, code: int | None, lines: list[str]) -> None:
        """A worker died before it was ready; without a code, because its template was killed."""
        if code is None:
            return
        failed = self._failures[peer.key] = self._failures.get(peer.key, 0) + 1
        if failed < MAX_START_FAILURES:
            return
        self._failures.pop(peer.key)
        if "failed" in peer.info:
            error = failures.environment_failed(str(peer.info["failed"]))
        else:
            error = failures.no_worker(code, lines)
        actors = self._machine.actors
        self.fail_queued(
            peer.key,
            error,
            lambda actor: actors.did_not_start(actor, peer, code, lines),
            lambda task: code != KILLED or not _is_retried_without_end(task),
        )

    def refused(self, peer: Peer, why: str) -> None:
        """The system did not let a worker start: attempt it later, and give up on tasks that have waited long."""
        now = self._machine.now
        refusal = self._refusals.get(peer.key)
        if refusal is None or now - refusal.last > RETRY_SECONDS:  # else attempts have never stopped
            refusal = self._refusals[peer.key] = _Refusal(now)
        elif refusal.next is None:  # else it was started together with the last one
            refusal.backoff = min(2 * refusal.backoff, LONGEST_BACKOFF)
        refusal.last = now
        refusal.next = now + refusal.backoff
        if now - refusal.since < RETRY_SECONDS:
            return
        machine = self._machine
        self.fail_queued(
            peer.key,
            failures.no_process(why),
            lambda actor: machine.actors.has_no_process(actor, why),
            lambda task: (
                now - task.created >= RETRY_SECONDS
                and machine.scheduler.has_room(task)
                and not self._others_serve(peer.key, task)
            ),
        )

    def fail_queued(
        self,
        key: Key,
        error: bytes,
        fail_actor: Callable[[Actor], None],
        which: Callable[[Task], bool] = lambda _: True,
    ) -> None:
        """Fail the tasks and actors that wait for a worker of one kind."""
        for task in [task for task in self._machine.scheduler.queued(key) if which(task)]:
            if task.actor is not None:
                fail_actor(task.actor)
            else:
                self._machine.tasks.fail(task, error)

    def _others_serve(self, key: Key, task: Task) -> bool:
        """Return whether workers of one kind are there that will take a task, sooner or later."""
        workers = [peer for peer in self._machine.peers.values() if peer.key == key and not peer.is_driver]
        return any(
            peer.state in (IDLE, LEASED)
            and not peer.blocked
            and (task.actor is None or task.actor.handle not in peer.holds)
            for peer in workers
        )

    # ------------------------------------------------------------ time

    def process_ended(self) -> None:
        """There may be room for another process now."""
        for refusal in self._refusals.values():
            refusal.next = None

    def tick(self) -> bool:
        """Return whether an attempt is due."""
        due = [each for each in self._refusals.values() if each.next is not None]
        due = [each for each in due if self._machine.now >= (each.next or 0.0)]
        for refusal in due:
            refusal.next = None
        return bool(due)

    def next_tick(self) -> float | None:
        """Return in how many seconds the next attempt is due; None for never."""
        return min(self._pauses(), default=None) if self._refusals else None

    def _pauses(self) -> Iterator[float]:
        for refusal in self._refusals.values():
            if refusal.next is not None:
                yield max(0.0, refusal.next - self._machine.now)


def _is_retried_without_end(task: Task) -> bool:
    if task.actor is not None:
        return bool(task.actor.options.max_restarts < 0)
    return task.retries_left < 0
