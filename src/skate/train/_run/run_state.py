"""The state of a run over all its attempts: reports, checkpoints, the run's folder, and callbacks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from skate.train._reports import positions
from skate.train._reports.messages import CheckpointStored, Finished, Message, Reported
from skate.train._reports.metrics import numbers
from skate.train._reports.report_ledger import CompletedReport, KeptCheckpoint, ReportLedger, Status
from skate.train._run.callbacks import UserCallback
from skate.train._run.run_context import RunContext
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._storage.run_folder import RunRecord, Storage
from skate.train._views.run_description import RunDescription
from skate.train._views.run_progress import RunProgress
from skate.train._views.views import Views

log = logging.getLogger(__name__)

_METRICS_IN_WARNING = 6


class RunState:
    """The state of one run, over all its attempts.

    Args:
        context: The configuration of the run.
        storage: The run's folder.
        resume_from: A checkpoint to start from.

    Attributes:
        record: The persistent part of the state.
        ledger: The reports of the current attempt.
        progress: The progress of the run, for the terminal.
        description: The details of the run, for its run record.
        checkpoints_completed: How many checkpoints this process has seen completed.
    """

    def __init__(self, context: RunContext, storage: Storage, resume_from: Checkpoint | None = None) -> None:
        self.storage = storage
        self.record = RunRecord(
            context.run_id,
            config=dict(context.train_loop_config or {}),
            first_checkpoint=storage.first_checkpoint,
        )
        self.ledger = ReportLedger(1)
        self.progress = RunProgress(storage.experiment_dir_name)
        self.description = RunDescription(
            self.progress, lambda: self.record.kept, storage.build_checkpoint_path_from_name
        )
        self._views = Views.from_environment(storage, ahead=context.scaling_config.max_workers > 0)
        self._context = context
        self._resume_from = resume_from
        self.checkpoints_completed = 0
        self._return_values: dict[int, Any] = {}
        self._dropped: list[str] = []  # checkpoints to delete once the stored record no longer names them
        self._history_fails = False
        self._nan_metrics: set[str] = set()

    # ------------------------------------------------------------ the start

    def resume(self, broadcast: Callable[[Any], Any]) -> None:
        """Load the state of an earlier run of the same name, if there is one.

        Args:
            broadcast: Returns the value of rank 0 in every process of a local worker group.
        """
        if self._context.trial is not None:  # Tune decides where the trial resumes
            self.storage.resume_history()
            self.storage.drop_incomplete(())
            return
        found = broadcast(self.storage.read() if self.storage.is_primary else None)
        if found is not None:
            self.record.kept, self.record.next_index = found.kept, found.next_index
            self.record.metrics, self.record.starts = found.metrics, found.starts
            self.record.first_checkpoint = self.storage.first_checkpoint = found.first_checkpoint
            self.storage.resume_history()
            self.storage.drop_incomplete(each.name for each in found.kept)
            if found.kept:
                log.info("resuming from %s", self.checkpoint(found.kept[-1]).path)

    def start_attempt(self, world_size: int) -> None:
        """Prepare for the reports of a new group of workers."""
        keep = self._context.run_config.checkpoint_config
        assert keep is not None
        self.record.score, self.record.order = keep.checkpoint_score_attribute, keep.checkpoint_score_order
        self.record.starts.append(self.record.next_index)
        self.progress.attempt_started()
        self._views.attempt_started(self.record.next_index)
        self.description.attempt_started(self.record.next_index)
        self.ledger = ReportLedger(
            world_size,
            first=self.record.next_index,
            kept=self.record.kept,
            keep=keep.num_to_keep,
            score=keep.checkpoint_score_attribute,
            order=keep.checkpoint_score_order,
            waits_for=[0] if self._needs_rank_0 else (),
        )

    @property
    def _needs_rank_0(self) -> bool:
        callbacks = self._context.run_config.callbacks or ()
        return any(isinstance(each, UserCallback) and each._needs_rank_0 for each in callbacks)

    @property
    def start_from(self) -> Checkpoint | None:
        """The checkpoint that workers resume from."""
        return self.checkpoint(self.record.kept[-1]) if self.record.kept else self._resume_from

    def resume_datasets(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Move datasets to the positions that were stored with the checkpoint that workers resume from."""
        if self._context.dataset_config.resumes:
            positions.resume(shards, self.record.kept[-1].positions if self.record.kept else ())

    def checkpoint(self, kept: KeptCheckpoint) -> Checkpoint:
        """Return a kept checkpoint as the public object."""
        path = self.storage.build_checkpoint_path_from_name(kept.name)
        return Checkpoint(path, self.storage.storage_filesystem)

    # ------------------------------------------------------------ messages of workers

    def received(self, rank: int, message: Message) -> None:
        """Handle a message of a worker."""
        match message:
            case Reported(metrics, name, validation, positions):
                self.progress.reported(rank, metrics, name, message.rows)
                self._views.reported(rank, self.ledger.index_of(rank), metrics)
                values = numbers(metrics)
                self.description.reported(rank, self.ledger.index_of(rank), values)
                self._warn_of_nan(rank, metrics, values)
                self._append_history(rank, metrics)
                self._process(self.ledger.reported(rank, metrics, name, positions, validation))
            case CheckpointStored(index, lost, name):
                self._process(self.ledger.stored(rank, index, lost, name))
            case Finished(value):
                self._return_values[rank] = value
            case _:
                raise AssertionError(f"unexpected {message!r}")

    def _append_history(self, rank: int, metrics: dict[str, Any]) -> None:
        try:
            self.storage.append_history(self.ledger.index_of(rank), rank, metrics, time.time())
        except OSError as error:
            if not self._history_fails:
                log.warning("could not write reports to the history; retrying with later reports: %s", error)
            self._history_fails = True
        else:
            self._history_fails = False

    def _warn_of_nan(self, rank: int, metrics: dict[str, Any], values: dict[str, float]) -> None:
        """Warn, once per metric, that a metric is NaN: training from there on is usually wasted."""
        bad = {name for name, value in values.items() if value != value} - self._nan_metrics
        if not bad:
            return
        self._nan_metrics |= bad
        start = self.start_from
        log.warning(
            "rank %d reports NaN as %s, in its report %d (%s). The latest checkpoint is %s",
            rank,
            ", ".join(map(repr, sorted(bad))),
            self.ledger.index_of(rank),
            ", ".join(f"{name}={value}" for name, value in list(metrics.items())[:_METRICS_IN_WARNING]),
            "none yet" if start is None else start.path,
        )

    def worker_ended(self, rank: int) -> None:
        """Handle the return of a worker's training function."""
        self._process(self.ledger.ended(rank))

    def validated(self, index: int, status: Status, metrics: Mapping[str, Any] | None = None) -> None:
        """Handle the end of a validation."""
        found = dict(metrics or {})
        dropped = self.ledger.validated(index, status, found)
        self.record.kept = list(self.ledger.kept)
        if self.record.metrics is not None and index == self.record.next_index - 1:
            self.record.metrics = {**self.record.metrics, **found}
        for rank, last in self.progress.metrics.items():
            if self.ledger.index_of(rank) == index + 1:
                self.progress.metrics[rank] = {**last, **found}
        self._save(dropped)

    @property
    def pending(self) -> list[KeptCheckpoint]:
        """The checkpoints that wait for validation, oldest first."""
        return [each for each in self.ledger.kept if each.is_pending]

    def checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any], str]]:
        """Return the kept checkpoints, oldest first, each with its metrics and its status."""
        return [(self.checkpoint(each), each.metrics, each.status.value) for each in self.ledger.kept]

    def drop_unfinished(self) -> None:
        """Delete the parts of checkpoints that can no longer become complete."""
        self.storage.drop(self.ledger.unfinished)

    def _process(self, completed: list[CompletedReport]) -> None:
        for each in completed:
            if each.index >= self.record.next_index:  # otherwise a late checkpoint of an earlier report
                self.record.next_index = each.index + 1
                self.record.metrics = next((found for found in each.metrics if found is not None), None)
            if each.lost is not None:
                self.progress.lost += 1
                self.progress.storing = None
                log.warning(
                    "the checkpoint of report %d is lost; training continues: %s", each.index, each.lost
                )
                self._drop(each.lost_name)
            if each.checkpoint is not None:
                self.checkpoints_completed += 1
                self.record.kept = list(self.ledger.kept)
                self.progress.checkpoint = each.checkpoint.name
                self._save(each.dropped)
            for callback in self._context.run_config.callbacks or ():
                checkpoint = self.checkpoint(each.checkpoint) if each.checkpoint is not None else None
                callback.after_report(self._context, [dict(m or {}) for m in each.metrics], checkpoint)

    def _save(self, dropped: Iterable[KeptCheckpoint] = ()) -> None:
        """Write the record, then delete the checkpoints that it no longer names. The next call retries a failure."""
        self._dropped += [each.name for each in dropped]
        try:
            self.storage.write(self.record)
        except OSError as error:
            log.warning(
                "could not write the record of the run in %s; training continues. Until a later write succeeds, the "
                "run would resume from the previous checkpoint: %s",
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
            log.warning("could not delete checkpoints that are no longer kept: %s", error)

    # ------------------------------------------------------------ the end

    def close(self, status: str, error: str | None = None) -> None:
        """Store how the run ended."""
        self.record.status, self.record.error = status, error
        if self.progress.metrics:
            self.record.metrics = self.progress.metrics[min(self.progress.metrics)]
        self._save()
        self._views.close(self.record.starts)

    def result(self) -> Result:
        """Return the result of the run."""
        return Result.of(self.storage, self.record, self._return_values.get(0))
