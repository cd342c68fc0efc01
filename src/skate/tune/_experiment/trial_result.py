"""The result of a trial."""

from __future__ import annotations

import copy
import os
import posixpath
from typing import Any

import pyarrow.fs as pafs

from skate import train
from skate.train import Checkpoint
from skate.train._storage import folders
from skate.train._storage.run_folder import RunRecord
from skate.tune._experiment.checkpoints import rank
from skate.tune._experiment.folder import ExperimentFolder, describe_location
from skate.tune._experiment.recorder import read_trials
from skate.tune._experiment.staging import open_folder
from skate.tune.experiment import Trial
from skate.tune.result import AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, SHOULD_CHECKPOINT, TRIAL_ID

_AUTOMATIC = frozenset((*AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, SHOULD_CHECKPOINT, TRIAL_ID))


class Result(train.Result):
    """The result of a trial.

    Attributes:
        metrics: The last report of the trial.
        checkpoint: The latest checkpoint.
        error: The exception that ended the trial, if it failed.
        path: The trial's folder.
        metrics_dataframe: All reports of the trial, one per row.
        best_checkpoints: The kept checkpoints with their metrics. The best one is last if `CheckpointConfig` names a
            score; otherwise the oldest one is first.
    """

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Return the result of a trial from its folder, inside the folder of its experiment.

        Args:
            path: The trial's folder: a local path or a URI.
            storage_filesystem: The filesystem of the path; determined by the path if not given.

        Raises:
            RuntimeError: The folder is not that of a trial.
        """
        filesystem, where = folders.locate(path, storage_filesystem)
        parent, name = posixpath.split(where.rstrip("/"))
        folder = open_folder(parent, filesystem)
        trials = read_trials(folder, folder.read_journal()) if folder.exists() else []
        for trial in trials:
            if trial.relative_logdir == name:
                return result_of(folder, trial)
        is_missing = filesystem.get_file_info(where).type == pafs.FileType.NotFound
        problem = "doesn't exist" if is_missing else "is not the folder of a trial"
        raise RuntimeError(
            f"{describe_location(filesystem, where)} {problem}: `path` must be a folder inside the folder of an "
            "experiment, such as `Result.path`."
        )

    def __repr__(self) -> str:
        return train.Result.__repr__(self._as_reported())

    def _repr_html_(self) -> str:
        return train.Result._repr_html_(self._as_reported())

    def _as_reported(self) -> Result:
        """Return the result with those metrics only that the trial has reported."""
        shown = copy.copy(self)
        if self.metrics is not None:
            shown.metrics = {name: value for name, value in self.metrics.items() if name not in _AUTOMATIC}
        return shown


def result_of(folder: ExperimentFolder, trial: Trial) -> Result:
    """Return the result of a trial.

    Args:
        folder: The experiment's folder.
        trial: The trial.
    """
    path = folder.trial_path(trial)
    return Result(
        metrics=trial.last_result,
        checkpoint=trial.checkpoint,
        error=trial.error,
        path=path,
        best_checkpoints=[
            (Checkpoint(f"{path}/{each.name}", folder.filesystem), each.metrics)
            for each in rank(trial.kept, trial.checkpoint_config)
        ],
        _storage_filesystem=folder.filesystem,
        _record=RunRecord(trial.trial_id, config=trial.config),
        _history=folder.history(trial),
    )
