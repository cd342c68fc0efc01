"""Decides when silent workers are probed and when a run hangs, without a clock of its own.

A worker may train for hours without a report, so silence alone proves nothing. Its process, however, must answer a
probe. In addition, the user may set how often some worker must send a message once all have begun.
"""

from __future__ import annotations

from collections.abc import Iterable


class LivenessTracker:
    """Tracks how long each worker has been silent.

    Args:
        ranks: The workers.
        now: The time, in seconds of any monotonic clock.
        hang_timeout: Seconds without a message from any worker, once each has sent its first, after which the run
            hangs; None for no limit.
        probe_after: Seconds of silence after which a worker is probed.
        probe_timeout: Seconds in which it must answer.
        recheck_after: Seconds of silence after which a worker is probed once another has returned: it may wait for that
            one in vain.
    """

    def __init__(
        self,
        ranks: Iterable[int],
        now: float,
        *,
        hang_timeout: float | None,
        probe_after: float,
        probe_timeout: float,
        recheck_after: float,
    ) -> None:
        self._received = dict.fromkeys(ranks, now)  # when the last message of each worker came
        self._probed: dict[int, float] = {}  # when the open probes were sent
        self._answered: dict[int, float] = {}
        self._not_begun = set(self._received)
        self._last = now
        self._hang_timeout, self._probe_after, self._probe_timeout = hang_timeout, probe_after, probe_timeout
        self._recheck_after = recheck_after

    # ------------------------------------------------------------ events

    def received(self, rank: int, now: float) -> None:
        """Record a message of a worker's training function."""
        self._received[rank] = self._last = now
        self._not_begun.discard(rank)
        self._probed.pop(rank, None)

    def ended(self, rank: int, now: float) -> None:
        """A worker will send no further messages."""
        self._last = now
        self._not_begun.discard(rank)
        for each in (self._received, self._probed, self._answered):
            each.pop(rank, None)

    def returned(self, rank: int, now: float) -> None:
        """Record that a worker's training function has returned. Others may still wait for it."""
        self.ended(rank, now)
        self._probe_after = min(self._probe_after, self._recheck_after)

    def probed(self, rank: int, now: float) -> None:
        """Record that a worker is probed."""
        self._probed.setdefault(rank, now)

    def answered(self, rank: int, now: float) -> None:
        """Record the reply to a probe, which is not a message of the training function."""
        self._probed.pop(rank, None)
        if rank in self._received:
            self._answered[rank] = now

    # ------------------------------------------------------------ decisions

    def hangs(self, now: float) -> bool:
        """Return whether the run hangs by its time limit."""
        return self._hangs_at is not None and now >= self._hangs_at

    def to_probe(self, now: float) -> list[int]:
        """Return the workers to probe."""
        return [rank for rank in self._received if rank not in self._probed and now >= self._next_probe(rank)]

    def unresponsive(self, now: float) -> list[int]:
        """Return the workers that have not answered a probe in time."""
        return [rank for rank, sent in self._probed.items() if now - sent >= self._probe_timeout]

    def silent_for(self, rank: int, now: float) -> float:
        """Return the seconds since the last message of a worker."""
        return now - self._received.get(rank, now)

    def due(self) -> float | None:
        """Return when to decide next, if no event comes before; None if no worker is left."""
        times = [self._next_probe(rank) for rank in self._received if rank not in self._probed]
        times += [sent + self._probe_timeout for sent in self._probed.values()]
        if self._hangs_at is not None:
            times.append(self._hangs_at)
        return min(times, default=None)

    @property
    def _hangs_at(self) -> float | None:
        if not self._received or self._not_begun or self._hang_timeout is None:
            return None
        return self._last + self._hang_timeout

    def _next_probe(self, rank: int) -> float:
        return max(self._received[rank], self._answered.get(rank, self._received[rank])) + self._probe_after
