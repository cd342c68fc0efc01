"""Checkpoints that were being stored when a worker failed: they are waited for as long as they get on."""

from __future__ import annotations

import logging
import time
from collections.abc import Container
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train._run.journal import Journal
from skate.train._workers.group import WorkerGroup

log = logging.getLogger(__name__)

_INTERVAL = 1.0  # seconds between two looks at whether they get on


class Uploads:
    """What the workers of a group that has failed are still storing.

    Args:
        group: The workers.
        journal: Knows which checkpoints can still be complete.
        limit: Seconds for which nothing may move before the checkpoints are given up.
    """

    def __init__(self, group: WorkerGroup, journal: Journal, limit: float) -> None:
        self._group = group
        self._journal = journal
        self._limit = limit
        self._end: int | None = None
        self._ranks: Container[int] = ()
        self._moved_at = 0.0
        self._moved: dict[int, int] = {}
        self._questions: dict[Any, int] = {}
        self.due: float | None = None

    @property
    def refs(self) -> list[Any]:
        """Answers that are waited for."""
        return list(self._questions)

    def begin(self) -> None:
        """A worker has failed: wait for what is being stored now, and for nothing that is reported later."""
        self._end = self._journal.ledger.end
        self._moved_at = time.monotonic()

    def arrived(self) -> None:
        """A part of a checkpoint is stored."""
        self._moved_at = time.monotonic()

    def are_awaited(self, ranks: set[int]) -> bool:
        """Tell whether to wait for what some workers are storing, because it will be a checkpoint and gets on.

        Args:
            ranks: The workers that live.
        """
        assert self._end is not None
        if not self._journal.ledger.is_storing(ranks, self._end):
            self.due = None
            return False
        if time.monotonic() >= self._moved_at + self._limit:
            log.warning(
                "a checkpoint that was being stored when a worker failed is given up: nothing of it has moved for %g s "
                "(FailureConfig.upload_timeout_s)",
                self._limit,
            )
            return False
        if self.due is None:
            log.info("waiting for a checkpoint that was being stored when a worker failed")
            self.due = time.monotonic()
        self._ranks = ranks
        return True

    def look(self) -> None:
        """Ask the workers how far they are."""
        if self.due is None or time.monotonic() < self.due:
            return
        self.due = time.monotonic() + min(_INTERVAL, self._limit / 2)
        asked = set(self._questions.values())  # who does not answer is not asked twice
        for member in self._group.members:
            rank = member.place.world_rank
            if rank in self._ranks and rank not in asked:
                self._questions[member.actor.moved.remote()] = rank

    def came(self, ref: Any) -> None:
        """A worker has said how far it is."""
        rank = self._questions.pop(ref)
        try:
            moved = skate.get(ref)
        except RayError:  # its stream says that it is gone
            return
        if moved > self._moved.get(rank, 0):
            self._moved[rank] = moved
            self._moved_at = time.monotonic()
