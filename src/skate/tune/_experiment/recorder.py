"""Record the events of an experiment in its journal, and the state of its search in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skate.exceptions import RayTaskError
from skate.train import Checkpoint
from skate.train._storage import folders
from skate.tune._experiment.checkpoints import KeptCheckpoint, number_after
from skate.tune._experiment.folder import ExperimentFolder, decode, encode
from skate.tune._experiment.journal import Record
from skate.tune.error import TuneError
from skate.tune.experiment import Trial

if TYPE_CHECKING:
    from skate.tune._experiment.uploads import Uploader

SYNC_INTERVAL_S = 1.0  # between two syncs of the disk
_STATE_SHARE = 0.02  # the fraction of the time that is spent on saving the state of the search


class Recorder:
    """Records the events of one experiment.

    Args:
        folder: The experiment's folder.
        uploader: Uploads the folder; None if it is on a local disk.

    Raises:
        TuneError: Another program runs the experiment.
    """

    def __init__(self, folder: ExperimentFolder, uploader: Uploader | None = None) -> None:
        self._folder = folder
        self._uploader = uploader
        self._has_checkpoints = False  # whether there are checkpoints whose records are not uploaded
        self._dropped: list[str] = []
        self._journal = folder.open_journal()
        self._last_sync = time.monotonic()
        self._next_state = 0.0
        self.created = 0  # trials that this program and earlier ones have created

    def added(self, trial: Trial) -> None:
        """Record a new trial."""
        self.created += 1
        self._journal.append(_added(trial))

    def changed(self, trial: Trial) -> None:
        """Record the configuration and the checkpoint that a scheduler has given to a trial."""
        self._journal.append(_changed(trial, self._folder))

    def checkpoint(self, trial: Trial, name: str, metrics: Mapping[str, Any]) -> None:
        """Record a new checkpoint of a trial."""
        self._journal.append(_checkpoint(trial, name, metrics))
        self._has_checkpoints = True

    def dropped(self, path: str) -> None:
        """Drop a checkpoint, which is deleted once the journal in the storage has a newer one."""
        if self._uploader is None:
            folders.delete(self._folder.filesystem, path)
        else:
            self._dropped.append(path)

    def ended(self, trial: Trial) -> None:
        """Record the end of a trial."""
        self._journal.append(_ended(trial))

    def start(self) -> None:
        """Start a new journal. The journal of an earlier experiment in the same folder is renamed."""
        self._folder.delete_state()
        self._journal.rotate()
        if self._uploader is not None:
            self._uploader.start()

    def restart(self, trials: Sequence[Trial]) -> None:
        """Replace the journal with one that has the current state of each trial."""
        if self._uploader is not None:
            self._uploader.download(
                trial.relative_logdir
                for trial in trials
                if trial.relative_logdir is not None and not trial.is_finished()
            )
        self._journal.compact(record for trial in trials for record in _records(trial, self._folder))
        if self._uploader is not None:  # not earlier: uploads need a journal that only grows
            self._uploader.start()

    def step(self, state: Callable[[], dict[str, Any]] | None) -> None:
        """Flush the records of a step to the operating system; at intervals, start a sync and save the state.

        Args:
            state: Returns the state of the search; None if another experiment stores it.
        """
        self._journal.flush()
        if self._uploader is not None and self._has_checkpoints:
            self._request_upload(self._uploader)
        now = time.monotonic()
        if now - self._last_sync >= SYNC_INTERVAL_S:
            self._journal.start_commit()
            self._last_sync = now
        if state is not None and now >= self._next_state:
            self.save_state(state)

    def _request_upload(self, uploader: Uploader) -> None:
        uploader.request(self._dropped)
        self._dropped = []
        self._has_checkpoints = False

    def save_state(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save the state of the search, and how many trials have been created."""
        begun = time.monotonic()
        self._folder.write_state({**state(), "created": self.created})
        now = time.monotonic()
        self._next_state = now + max(SYNC_INTERVAL_S, (now - begun) / _STATE_SHARE)

    def close(self) -> None:
        """Wait until all records are on disk."""
        self._journal.close()
        if self._uploader is not None:
            self._request_upload(self._uploader)


def _added(trial: Trial) -> Record:
    return {
        "event": "added",
        "trial": trial.trial_id,
        "trainable": trial.trainable_name,
        "config": encode(trial._stored_config),
        "params": encode(trial.evaluated_params),
        "tag": trial.experiment_tag,
        "name": trial.custom_trial_name,
        "dirname": trial.relative_logdir,
    }


def _changed(trial: Trial, folder: ExperimentFolder) -> Record:
    checkpoint = trial.checkpoint
    is_elsewhere = checkpoint is not None and checkpoint.filesystem != folder.filesystem
    return {
        "event": "changed",
        "trial": trial.trial_id,
        "config": encode(trial._stored_config),
        "checkpoint": encode(checkpoint) if is_elsewhere else checkpoint and checkpoint.path,
        "metrics": encode(_without_config(trial, trial.checkpoint_metrics)),
    }


def _checkpoint(trial: Trial, name: str, metrics: Mapping[str, Any]) -> Record:
    return {
        "event": "checkpoint",
        "trial": trial.trial_id,
        "name": name,
        "metrics": encode(_without_config(trial, metrics)),
    }


def _ended(trial: Trial) -> Record:
    return {
        "event": "ended",
        "trial": trial.trial_id,
        "status": trial.status,
        "result": encode(_without_config(trial, trial.last_result)),
        "error": None if trial.error is None else encode(_describe(trial.error)),
    }


def _without_config(trial: Trial, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics without the configuration of the trial, which is recorded once."""
    return {name: value for name, value in metrics.items() if value is not trial.config}


def _describe(error: Exception) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else error
    return str(cause) if isinstance(cause, TuneError) else f"{type(cause).__name__}: {cause}"


def _records(trial: Trial, folder: ExperimentFolder) -> Iterator[Record]:
    """Yield the records from which `read_trials` rebuilds the trial as it is now."""
    yield _added(trial)
    for kept in trial.kept:
        yield _checkpoint(trial, kept.name, kept.metrics)
    yield _changed(trial, folder)
    if trial.is_finished():
        yield _ended(trial)


def read_trials(folder: ExperimentFolder, records: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """Return the trials of a journal, in the order in which they were added.

    If the first record of a trial is damaged, its configuration is lost, so its later records are skipped.
    """
    trials: dict[str, Trial] = {}
    for record in records:
        key = record["trial"]
        if record["event"] == "added":
            trial = trials[key] = Trial(
                record["trainable"],
                config=decode(record["config"]),
                trial_id=key,
                evaluated_params=decode(record["params"]),
                experiment_tag=record["tag"],
            )
            trial.custom_trial_name, trial.relative_logdir = record["name"], record["dirname"]
            folder.set_paths(trial)
            continue
        if key not in trials:
            continue
        trial = trials[key]
        if record["event"] == "checkpoint":
            metrics = decode(record["metrics"])
            metrics.setdefault("config", trial.config)
            trial.checkpoint = Checkpoint(f"{folder.trial_path(trial)}/{record['name']}", folder.filesystem)
            trial.checkpoint_metrics = trial.last_result = metrics
            trial.kept.append(KeptCheckpoint(record["name"], metrics))
            trial.next_checkpoint = max(trial.next_checkpoint, number_after(record["name"]))
        elif record["event"] == "changed":
            trial.config = decode(record["config"])
            stored = record["checkpoint"]
            trial.checkpoint = (
                decode(stored)
                if isinstance(stored, Mapping)
                else stored and Checkpoint(stored, folder.filesystem)
            )
            trial.checkpoint_metrics = decode(record["metrics"])
            if trial.checkpoint_metrics:
                trial.checkpoint_metrics.setdefault("config", trial.config)
        elif record["event"] == "ended":
            trial.status = record["status"]
            result = decode(record["result"])
            if result:
                result.setdefault("config", trial.config)
            trial.update_last_result(result)
            if record["error"] is not None:
                trial.error = TuneError(decode(record["error"]))
    saved = [trial for trial in trials.values() if trial.kept]
    found = folder.find_folders(
        {f"{folder.trial_path(trial)}/{each.name}" for trial in saved for each in trial.kept}
    )
    for trial in saved:
        trial.kept = [each for each in trial.kept if f"{folder.trial_path(trial)}/{each.name}" in found]
    return list(trials.values())
