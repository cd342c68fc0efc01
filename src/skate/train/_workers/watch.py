"""When workers have to be looked after because nothing is heard of them: decisions, without a clock of their own.

A worker may train for hours without a report, so that silence alone means nothing. But its process must answer when it
is asked where it is; and a user may know how often something ought to be heard, once all have begun.
"""

from __future__ import annotations

from collections.abc import Iterable


class Watch:
    """Knows how long each worker has been silent.

    Args:
        ranks: The workers.
        now: The time, in seconds of any clock that does not go back.
        limit: Seconds without a word from any worker, after each has said its first, after which the run hangs; None
            if there is no such limit.
        silence: Seconds after which a silent worker is asked whether it is there.
        patience: Seconds in which it has to answer.
        recheck: Seconds after which a silent worker is asked once another has returned, which may be waited for.
    """

    def __init__(
        self,
        ranks: Iterable[int],
        now: float,
        *,
        limit: float | None,
        silence: float,
        patience: float,
        recheck: float,
    ) -> None:
        self._heard = dict.fromkeys(ranks, now)  # the last word of the training function
        self._asked: dict[int, float] = {}  # when those were asked that have not answered
        self._answered: dict[int, float] = {}
        self._not_begun = set(self._heard)
        self._last = now
        self._limit, self._silence, self._patience = limit, silence, patience
        self._recheck = recheck

    # ------------------------------------------------------------ events

    def heard(self, rank: int, now: float) -> None:
        """The training function of a worker has said something."""
        self._heard[rank] = self._last = now
        self._not_begun.discard(rank)
        self._asked.pop(rank, None)

    def ended(self, rank: int, now: float) -> None:
        """Nothing more is to come from a worker."""
        self._last = now
        self._not_begun.discard(rank)
        for each in (self._heard, self._asked, self._answered):
            each.pop(rank, None)

    def returned(self, rank: int, now: float) -> None:
        """The training function of a worker has returned, while others may still wait for it."""
        self.ended(rank, now)
        self._silence = min(self._silence, self._recheck)

    def asked(self, rank: int, now: float) -> None:
        """A worker is asked whether it is there."""
        self._asked.setdefault(rank, now)

    def answered(self, rank: int, now: float) -> None:
        """A worker has answered that it is there, which is no word of its training function."""
        self._asked.pop(rank, None)
        if rank in self._heard:
            self._answered[rank] = now

    # ------------------------------------------------------------ decisions

    def hangs(self, now: float) -> bool:
        """Tell whether the run hangs by the limit that it was given."""
        return self._hangs_at is not None and now >= self._hangs_at

    def to_ask(self, now: float) -> list[int]:
        """Return which workers to ask whether they are there."""
        return [rank for rank in self._heard if rank not in self._asked and now >= self._next_question(rank)]

    def mute(self, now: float) -> list[int]:
        """Return the workers that have been asked and have not answered in time."""
        return [rank for rank, asked in self._asked.items() if now - asked >= self._patience]

    def silent_for(self, rank: int, now: float) -> float:
        """Return for how many seconds a training function has said nothing."""
        return now - self._heard.get(rank, now)

    def due(self) -> float | None:
        """Return when to decide next, if nothing is heard until then; None if there is nobody to watch."""
        times = [self._next_question(rank) for rank in self._heard if rank not in self._asked]
        times += [asked + self._patience for asked in self._asked.values()]
        if self._hangs_at is not None:
            times.append(self._hangs_at)
        return min(times, default=None)

    @property
    def _hangs_at(self) -> float | None:
        if not self._heard or self._not_begun or self._limit is None:
            return None
        return self._last + self._limit

    def _next_question(self, rank: int) -> float:
        return max(self._heard[rank], self._answered.get(rank, self._heard[rank])) + self._silence
