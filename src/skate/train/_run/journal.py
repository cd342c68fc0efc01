"""What a run has reported: taken in, counted, kept in the run's folder, and told to callbacks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from skate.train._reports import positions
from skate.train._reports.ledger import Completed, Kept, Ledger, Status
from skate.train._reports.messages import Announced, Finished, Message, Stored
from skate.train._reports.metrics import numbers
from skate.train._run.run_context import RunContext
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._storage.run_folder import Record, Storage
from skate.train._views import progress
from skate.train._views.views import Views

log = logging.getLogger(__name__)

_SHOWN = 6  # metrics in a warning


class Journal:
    """The reports of one run, over all its attempts.

    Args:
        context: What the run was set up with.
        storage: The run's folder.
        resume_from: A checkpoint to begin with.

    Attributes:
        record: What is kept of the run.
        ledger: The reports of the workers that train now.
        standing: How far the run is, for the terminal.
        checkpoints_completed: How many have been, since this process drives the run.
    """

    def __init__(self, context: RunContext, storage: Storage, resume_from: Checkpoint | None = None) -> None:
        self.storage = storage
        self.record = Record(context.run_id, config=dict(context.train_loop_config or {}))
        self.ledger = Ledger(1)
        self.standing = progress.Standing(storage.experiment_dir_name)
        self._views = Views.of(storage, ahead=context.scaling_config.max_workers > 0)
        self._context = context
        self._resume_from = resume_from
        self.checkpoints_completed = 0
        self._values: dict[int, Any] = {}
        self._dropped: list[str] = []  # checkpoints that go when the record does not name them any more
        self._notes_fail = False
        self._not_numbers: set[str] = set()

    # ------------------------------------------------------------ beginnings

    def go_on(self, share: Callable[[Any], Any]) -> None:
        """Take up a run of the same name, if there was one.

        Args:
            share: Hands what one process gives to all that train together.
        """
        found = share(self.storage.read() if self.storage.keeps else None)
        if found is not None:
            self.record.kept, self.record.next_index = found.kept, found.next_index
            self.record.metrics, self.record.starts = found.metrics, found.starts
            self.storage.begin_history()
            self.storage.drop_strays(each.name for each in found.kept)
            if found.kept:
                log.info("going on from %s", self.storage.path_of(found.kept[-1].name))

    def begin(self, world: int) -> None:
        """Workers are about to train."""
        keep = self._context.run_config.checkpoint_config
        assert keep is not None
        self.record.score, self.record.order = keep.checkpoint_score_attribute, keep.checkpoint_score_order
        self.record.starts.append(self.record.next_index)
        self.standing.started()
        self._views.started(self.record.next_index)
        self.ledger = Ledger(
            world,
            first=self.record.next_index,
            kept=self.record.kept,
            keep=keep.num_to_keep,
            score=keep.checkpoint_score_attribute,
            order=keep.checkpoint_score_order,
        )

    @property
    def start_from(self) -> Checkpoint | None:
        """The checkpoint that workers go on from."""
        return self.checkpoint(self.record.kept[-1]) if self.record.kept else self._resume_from

    def let_go_on(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Let workers read their datasets from where those stood who gave the checkpoint that they go on from."""
        if self._context.dataset_config.resumes:
            positions.go_on(shards, self.record.kept[-1].positions if self.record.kept else ())

    def checkpoint(self, kept: Kept) -> Checkpoint:
        """Return a checkpoint that is kept."""
        return Checkpoint(self.storage.path_of(kept.name), self.storage.storage_filesystem)

    # ------------------------------------------------------------ what workers say

    def heard(self, rank: int, message: Message) -> None:
        """A worker has said something."""
        match message:
            case Announced(metrics, name, validation, positions):
                self.standing.heard(rank, metrics, name, message.rows)
                self._views.heard(rank, self.ledger.index_of(rank), metrics)
                self._see_whether_numbers(rank, metrics)
                self._note(rank, metrics)
                self._completed(self.ledger.announced(rank, metrics, name, positions, validation))
            case Stored(index, lost, name):
                self._completed(self.ledger.stored(rank, index, lost, name))
            case Finished(value):
                self._values[rank] = value
            case _:
                raise AssertionError(f"unexpected {message!r}")

    def _note(self, rank: int, metrics: dict[str, Any]) -> None:
        try:
            self.storage.note(self.ledger.index_of(rank), rank, metrics, time.time())
        except OSError as error:
            if not self._notes_fail:
                log.warning("reports could not be noted, and are kept until they can be: %s", error)
            self._notes_fail = True
        else:
            self._notes_fail = False

    def _see_whether_numbers(self, rank: int, metrics: dict[str, Any]) -> None:
        """Warn, once for each metric, that it is not a number: what is trained from there on is lost."""
        bad = {name for name, value in numbers(metrics).items() if value != value} - self._not_numbers
        if not bad:
            return
        self._not_numbers |= bad
        start = self.start_from
        log.warning(
            "rank %d reports NaN as %s, in its report %d (%s). The latest checkpoint is %s",
            rank,
            ", ".join(map(repr, sorted(bad))),
            self.ledger.index_of(rank),
            ", ".join(f"{name}={value}" for name, value in list(metrics.items())[:_SHOWN]),
            "none yet" if start is None else start.path,
        )

    def ended(self, rank: int) -> None:
        """A worker's training function has returned."""
        self._completed(self.ledger.ended(rank))

    def validated(self, index: int, status: Status, metrics: Mapping[str, Any] | None = None) -> None:
        """A checkpoint has been validated, or could not be."""
        found = dict(metrics or {})
        dropped = self.ledger.validated(index, status, found)
        self.record.kept = list(self.ledger.kept)
        if self.record.metrics is not None and index == self.record.next_index - 1:
            self.record.metrics = {**self.record.metrics, **found}
        for rank, said in self.standing.metrics.items():
            if self.ledger.index_of(rank) == index + 1:
                self.standing.metrics[rank] = {**said, **found}
        self._write(dropped)

    @property
    def pending(self) -> list[Kept]:
        """The checkpoints that wait to be validated, oldest first."""
        return [each for each in self.ledger.kept if each.is_pending]

    def checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any], str]]:
        """Return the checkpoints that are kept, oldest first, with the metrics and the status of each."""
        return [(self.checkpoint(each), each.metrics, each.status.value) for each in self.ledger.kept]

    def drop_unfinished(self) -> None:
        """Delete what is there of checkpoints that will not be completed any more."""
        self.storage.drop(self.ledger.unfinished)

    def _completed(self, done: list[Completed]) -> None:
        for each in done:
            if each.index >= self.record.next_index:  # else a checkpoint that came late
                self.record.next_index = each.index + 1
                self.record.metrics = next((said for said in each.metrics if said is not None), None)
            if each.lost is not None:
                self.standing.lost += 1
                self.standing.storing = None
                log.warning(
                    "checkpoint of report %d is lost, and training goes on: %s", each.index, each.lost
                )
                self._drop(each.lost_name)
            if each.checkpoint is not None:
                self.checkpoints_completed += 1
                self.record.kept = list(self.ledger.kept)
                self.standing.checkpoint = each.checkpoint.name
                self._write(each.dropped)
            for callback in self._context.run_config.callbacks or ():
                checkpoint = self.checkpoint(each.checkpoint) if each.checkpoint is not None else None
                callback.after_report(self._context, [dict(m or {}) for m in each.metrics], checkpoint)

    def _write(self, dropped: Iterable[Kept] = ()) -> None:
        """Write the record, and only then delete what it no longer names. What fails is tried again next time."""
        self._dropped += [each.name for each in dropped]
        try:
            self.storage.write(self.record)
        except OSError as error:
            log.warning(
                "the run's record in %s could not be written, and training goes on; until it can be, the run would be "
                "gone on with from the checkpoint before: %s",
                self.storage.experiment_fs_path,
                error,
            )
            return
        names, self._dropped = self._dropped, []
        self._drop(*names)

    def _drop(self, *names: str | None) -> None:
        try:
            self.storage.drop(name for name in names if name is not None)
        except OSError as error:
            log.warning("checkpoints that are no longer kept could not be deleted: %s", error)

    # ------------------------------------------------------------ the end

    def close(self, status: str, error: str | None = None) -> None:
        """Note how the run has ended."""
        self.record.status, self.record.error = status, error
        if self.standing.metrics:
            self.record.metrics = self.standing.metrics[min(self.standing.metrics)]
        self._write()
        self._views.closed(self.record.starts)

    def result(self) -> Result:
        """Return what came of the run."""
        return Result.of(self.storage, self.record, self._values.get(0))
