"""Checkpoint uploads that were under way when a worker failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Container
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train._run.run_state import RunState
from skate.train._workers.group import WorkerGroup

log = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0


class Uploads:
    """Waits, after a failure, for the uploads of the other workers while they make progress; an event source.

    Args:
        group: The workers.
        run_state: Knows which checkpoints can still become complete.
        timeout: Seconds without progress after which the uploads are abandoned.
    """

    def __init__(self, group: WorkerGroup, run_state: RunState, timeout: float) -> None:
        self._group = group
        self._run_state = run_state
        self._timeout = timeout
        self._end: int | None = None
        self._ranks: Container[int] = ()
        self._progress_at = 0.0
        self._uploaded: dict[int, int] = {}
        self._calls: dict[Any, int] = {}
        self.wake_at: float | None = None

    @property
    def refs(self) -> list[Any]:
        """The calls that ask workers for their progress."""
        return list(self._calls)

    def start(self) -> None:
        """Wait from now on for current uploads, and ignore those of later reports."""
        self._end = self._run_state.ledger.end
        self._progress_at = time.monotonic()

    def stored(self) -> None:
        """Record that a worker has stored its part of a checkpoint."""
        self._progress_at = time.monotonic()

    def should_wait(self, ranks: set[int]) -> bool:
        """Return whether current uploads make progress and will complete a checkpoint.

        Args:
            ranks: The workers that are alive.
        """
        assert self._end is not None
        if not self._run_state.ledger.is_storing(ranks, self._end):
            self.wake_at = None
            return False
        if time.monotonic() >= self._progress_at + self._timeout:
            log.warning(
                "abandoned the checkpoint that was being stored when a worker failed: its upload made no progress for "
                "%g s (FailureConfig.upload_timeout_s)",
                self._timeout,
            )
            return False
        if self.wake_at is None:
            log.info("waiting for a checkpoint that was being stored when a worker failed")
            self.wake_at = time.monotonic()
        self._ranks = ranks
        return True

    def poll(self) -> None:
        """Ask the workers for their progress."""
        if self.wake_at is None or time.monotonic() < self.wake_at:
            return
        self.wake_at = time.monotonic() + min(_POLL_INTERVAL_S, self._timeout / 2)
        asked = set(self._calls.values())  # one call at a time to a worker that does not answer
        for member in self._group.members:
            rank = member.ranks.world_rank
            if rank in self._ranks and rank not in asked:
                self._calls[member.actor.uploaded_bytes.remote()] = rank

    def on_ready(self, ref: Any) -> None:
        """Note the progress of a worker."""
        rank = self._calls.pop(ref)
        try:
            uploaded = skate.get(ref)
        except RayError:  # the worker's stream reports its end
            return
        if uploaded > self._uploaded.get(rank, 0):
            self._uploaded[rank] = uploaded
            self._progress_at = time.monotonic()
