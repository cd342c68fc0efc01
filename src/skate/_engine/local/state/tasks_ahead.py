"""Tasks that busy workers get ahead of time, and when they are recalled.

The time from the end of a task to the start of the next one would be lost otherwise: a millisecond if many workers are
busy, and more while programs submit thousands of tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skate._engine.local.state.records import LEASED, Key, Peer, SchedulingClass, Task, Template
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

LONG_TASK_S = 0.025  # tasks with a longer mean duration are not sent ahead
WORK_AHEAD_S = 0.010  # seconds of work that a worker should have beside the task that it runs
MAX_TASKS_AHEAD = 64  # tasks that a worker may have at a time
RECALL_TIMEOUT_S = 0.005  # the shortest time that a task runs until those behind it are recalled
WORTH_RECALLING_S = 0.002  # seconds of work that are recalled for an idle worker
RECALL_PAUSE_S = 0.001  # seconds between two rounds of such recalls


class TasksAhead:
    """The workers with tasks that wait behind the one that they run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._peers: dict[int, Peer] = {}
        self._last_recall = -RECALL_PAUSE_S

    def __bool__(self) -> bool:
        return bool(self._peers)

    def __contains__(self, peer: Peer) -> bool:
        return peer.number in self._peers

    def watch(self, peer: Peer) -> None:
        """Watch a worker that has got or handed back tasks."""
        if len(peer.tasks) > 1 and peer.state is LEASED:
            self._peers[peer.number] = peer
        else:
            self._peers.pop(peer.number, None)

    def forget(self, peer: Peer) -> None:
        """Forget a worker that ends, or that has no tasks ahead any more."""
        self._peers.pop(peer.number, None)

    def send(self, cls: SchedulingClass, run: Callable[[Peer, Task], None]) -> None:
        """Distribute queued tasks among the workers of a class that have few, as long as they are short.

        Args:
            cls: The class, whose queue is not empty.
            run: Sends a task to a worker.
        """
        queue = cls.queue
        most = queue[0].template.per_worker // 2
        peers = [
            peer
            for peer in cls.leased.values()
            if len(peer.tasks) <= most
            and not peer.blocked
            and peer.state is LEASED
            and not self._is_late(peer)
        ]
        if len(peers) > 1:
            peers.sort(key=_count_tasks)
        for number, peer in enumerate(peers):
            count = len(peer.tasks)
            share = count + -(-len(queue) // (len(peers) - number))
            while count < share and count < queue[0].template.per_worker:
                run(peer, queue.popleft())
                count += 1
                if not queue:
                    break
            self.watch(peer)
            if not queue:
                return

    def recall_late(self) -> None:
        """Recall the tasks that wait behind one that takes long."""
        for peer in list(self._peers.values()):
            if self._is_late(peer):
                self._recall(peer)

    def recall_for(self, idle: dict[Key, int], has_room: Callable[[SchedulingClass], bool]) -> None:
        """Recall tasks that idle workers can run, from one worker for each idle one.

        Args:
            idle: The number of idle workers of each kind.
            has_room: Whether the resources of another task of a class are free.
        """
        now = self._machine.now
        if now - self._last_recall < RECALL_PAUSE_S:  # the tasks of the last round are on their way
            return
        self._last_recall = now
        for peer in sorted(self._peers.values(), key=_count_tasks, reverse=True):
            cls = peer.lease
            if cls is None or cls.queue or not idle.get(cls.key) or not has_room(cls):
                continue
            tasks = iter(peer.tasks.values())
            next(tasks)  # is running
            if sum(task.template.mean for task in tasks) >= WORTH_RECALLING_S:
                idle[cls.key] -= 1
                self._recall(peer)

    def _recall(self, peer: Peer) -> None:
        del self._peers[peer.number]
        self._machine.send(peer.number, m.Recall())

    def _is_late(self, peer: Peer) -> bool:
        """Return whether a worker runs a long task, or one that takes much longer than others of its function."""
        for task in peer.tasks.values():
            mean = task.template.mean
            limit = max(RECALL_TIMEOUT_S, 2 * mean)
            return mean >= LONG_TASK_S or self._machine.now - peer.head_since >= limit
        return False


def update_mean(template: Template, seconds: float) -> None:
    """Take the duration of a task into account."""
    template.samples += 1
    if template.samples == 1:
        mean = seconds
    elif template.samples < 4:
        mean = max(template.mean, seconds)
    else:
        mean = template.mean + (seconds - template.mean) * 0.1
    template.mean = mean
    if mean * MAX_TASKS_AHEAD <= WORK_AHEAD_S:
        template.per_worker = MAX_TASKS_AHEAD
    elif mean >= LONG_TASK_S:
        template.per_worker = 1
    else:
        template.per_worker = 1 + max(1, int(WORK_AHEAD_S / mean))


def _count_tasks(peer: Peer) -> int:
    return len(peer.tasks)
