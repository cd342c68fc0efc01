"""The choice of the worker to end when memory runs out, before the kernel chooses one.

Idle workers that use memory go first. Then the newest task or actor that can be retried, so that the least work is
lost and nothing fails; then the newest of the others. Drivers and the node are never chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from skate._engine.common import failures
from skate._engine.local.state.records import ACTOR, IDLE, LEASED, Peer
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

FRESH_WORKER_LIMIT = 1 << 30  # bytes: a smaller idle worker that has run nothing is kept
MAX_LISTED = 10  # processes that an error names


class Candidate(NamedTuple):
    """A worker that may be ended."""

    number: int
    idle: bool
    retriable: bool
    since: float  # when it got its current work
    size: int  # bytes of private memory


def choose(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the worker to end; None if there is none.

    >>> task, older = Candidate(1, False, True, 20.0, 10), Candidate(2, False, True, 10.0, 500)
    >>> actor, idle = Candidate(3, False, False, 30.0, 900), Candidate(4, True, False, 0.0, 1)
    >>> [choose(some).number for some in ([task, older, actor, idle], [older, task, actor], [actor])]
    [4, 1, 3]
    """
    return max(
        candidates,
        key=lambda each: (each.idle, each.size if each.idle else 0, each.retriable, each.since),
        default=None,
    )


class MemoryPressure:
    """Ends one worker at a time while the memory usage is too high."""

    def __init__(self, machine: Machine, oom_retries: int) -> None:
        self._machine = machine
        self.oom_retries = (
            oom_retries  # how often a task is retried after it was ended for its memory; -1: always
        )
        self._victim = 0

    def pressure(self, message: m.MemoryPressure) -> None:
        """Handle a memory usage above the threshold."""
        peers = self._machine.peers
        if self._victim in peers:
            return  # its memory is about to be released
        chosen = choose([each for peer in peers.values() if (each := self._candidate(peer, message))])
        if chosen is None:
            return
        self._victim = chosen.number
        peer = peers[chosen.number]
        name = _name_of(peer)
        rows = self._largest(message)
        peer.over_memory = failures.over_memory(
            name, message.used, message.total, message.where, message.threshold, rows
        )
        if not chosen.idle:
            self._machine.warn(failures.memory_warning(name, peer.pid, message.used, message.total))
        self._machine.kill(peer, peer.over_memory)

    def _largest(self, message: m.MemoryPressure) -> list[tuple[int, str]]:
        """Return the largest processes of the session, and the largest others, with their bytes."""
        peers = self._machine.peers
        ours = [
            (size, f"pid {peers[number].pid}, {_name_of(peers[number])}")
            for number, size in message.sizes.items()
            if number in peers
        ]
        others = [(size, text) for text, size in message.others]
        return sorted([*sorted(ours)[-MAX_LISTED:], *sorted(others)[-MAX_LISTED // 2 :]], reverse=True)

    def _candidate(self, peer: Peer, message: m.MemoryPressure) -> Candidate | None:
        size = message.sizes.get(peer.number, 0)
        if peer.is_driver or peer.killed:
            return None
        if peer.state is IDLE:
            return (
                Candidate(peer.number, True, False, 0.0, size)
                if peer.defined or size > FRESH_WORKER_LIMIT
                else None
            )
        if peer.state is ACTOR and peer.actor is not None:
            limit = peer.actor.options.max_restarts
            retriable = not peer.actor.no_restart and (limit < 0 or peer.actor.restarts < limit)
            return Candidate(peer.number, False, retriable, peer.head_since, size)
        if peer.state is LEASED:
            retriable = all(
                self.may_retry(task.id, task.template.spec.max_retries) for task in peer.tasks.values()
            )
            return Candidate(peer.number, False, retriable, peer.head_since, size)
        return None

    def may_retry(self, task: bytes, max_retries: int) -> bool:
        """Return whether a task may be retried after it was ended for its memory."""
        return max_retries != 0 and (
            self.oom_retries < 0 or self._machine.tasks.memory_retries.get(task, 0) < self.oom_retries
        )


def _name_of(peer: Peer) -> str:
    if peer.is_driver:
        return "the driver"
    if peer.actor is not None:
        return f"actor {peer.actor.class_name}"
    for task in peer.tasks.values():
        return f"task {task.template.spec.name}"
    return "an idle worker"
