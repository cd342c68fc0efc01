"""Starting workers: how many at a time, and the errors of tasks and actors whose workers cannot start.

A worker can fail to start in two ways. If it dies while it starts, it will probably do so again: a few failures in a
row fail the tasks and actors that wait for it. If it was killed from outside, tasks and actors with unlimited retries
wait for the next worker instead. If the system refuses another process, starts are retried with backoff, and tasks
that have waited for a while fail, unless other workers of the same kind will run them.
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
MAX_START_FAILURES = 3  # failures in a row of one kind of worker before its tasks fail


class _Refusal:
    """The system refuses to start workers of one kind, and none has started since."""

    __slots__ = ("backoff", "last", "next", "since")

    def __init__(self, now: float) -> None:
        self.since = self.last = now
        self.backoff = FIRST_BACKOFF
        self.next: float | None = None  # time of the next attempt; None: when a worker is needed


class Starts:
    """Counts the starting workers of each kind."""

    def __init__(self, machine: Machine, max_workers: int) -> None:
        self._machine = machine
        self._max_workers = max_workers
        self._starting: dict[Key, int] = {}
        self._failures: dict[Key, int] = {}
        self._refusals: dict[Key, _Refusal] = {}

    # ------------------------------------------------------------ starting

    def begin_for(self, cls: SchedulingClass, pool: Pool) -> None:
        """Start as many workers as the queue of a class can use at a time."""
        key = cls.key
        wanted = len(cls.queue)
        for name, amount in cls.request.items():
            wanted = min(wanted, max(1, pool.available.get(name, 0) // amount))
        wanted = min(wanted, self._max_workers)
        refusal = self._refusals.get(key)
        if refusal is not None:
            wanted = 1 if refusal.next is None else 0
        for position in range(self._starting.get(key, 0), wanted):
            self.begin(key, cls.queue[position].template.spec.function)

    def begin(self, key: Key, function: bytes = b"") -> None:
        """Start a worker of one kind, which will probably load a function or class first."""
        self._starting[key] = self._starting.get(key, 0) + 1
        self._machine.start_worker(key, function)

    def succeeded(self, peer: Peer) -> None:
        """Handle the readiness of a worker."""
        self.ended(peer)
        self._failures.pop(peer.key, None)
        self._refusals.pop(peer.key, None)

    def ended(self, peer: Peer) -> None:
        """Remove a worker from the starting ones."""
        left = self._starting.get(peer.key, 0) - 1
        if left > 0:
            self._starting[peer.key] = left
        else:
            self._starting.pop(peer.key, None)

    def forget(self, key: Key) -> None:
        """Drop the starting workers of a kind, which will not become ready."""
        self._starting.pop(key, None)

    def forget_job(self, job: bytes) -> None:
        """Drop the data of an ended job."""
        self._failures = {key: count for key, count in self._failures.items() if key[0] != job}
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if key[0] != job}

    # ------------------------------------------------------------ failing

    def failed(self, peer: Peer, code: int | None, lines: list[str]) -> None:
        """Handle a worker that died before it was ready; without a code, its template was killed."""
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
        """Handle a worker that the system refused to start: retry later, and fail tasks that have waited long."""
        now = self._machine.now
        refusal = self._refusals.get(peer.key)
        if refusal is None or now - refusal.last > RETRY_SECONDS:  # else the attempts have continued
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
        for task in [task for task in self._machine.scheduler.queued_tasks(key) if which(task)]:
            if task.actor is not None:
                fail_actor(task.actor)
            else:
                self._machine.tasks.fail(task, error)

    def _others_serve(self, key: Key, task: Task) -> bool:
        """Return whether other workers of one kind will run a task eventually."""
        workers = [peer for peer in self._machine.peers.values() if peer.key == key and not peer.is_driver]
        return any(
            peer.state in (IDLE, LEASED)
            and not peer.blocked
            and (task.actor is None or task.actor.handle not in peer.holds)
            for peer in workers
        )

    # ------------------------------------------------------------ time

    def process_ended(self) -> None:
        """Retry when a worker is needed, because an ended process may have made a start possible."""
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
        """Return the seconds until the next attempt, None for never."""
        return min(self._pauses(), default=None) if self._refusals else None

    def _pauses(self) -> Iterator[float]:
        for refusal in self._refusals.values():
            if refusal.next is not None:
                yield max(0.0, refusal.next - self._machine.now)


def _is_retried_without_end(task: Task) -> bool:
    if task.actor is not None:
        return bool(task.actor.options.max_restarts < 0)
    return task.retries_left < 0
