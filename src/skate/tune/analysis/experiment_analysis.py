"""Compare the trials of an experiment, from its folder or just after it has run."""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from skate.air import _arguments as arguments
from skate.air import _optional
from skate.train import Checkpoint
from skate.train._storage import folders
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._experiment.recorder import read_trials
from skate.tune._experiment.staging import open_folder
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import flat
from skate.tune.result import DEFAULT_METRIC

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = ["ExperimentAnalysis"]

SCOPES = ("all", "last", "avg", "last-5-avg", "last-10-avg")


class ExperimentAnalysis:
    """The trials of an experiment, and methods to compare them.

    Args:
        experiment_checkpoint_path: The experiment's folder, or a file in it: a local path or a URI.
        storage_filesystem: The filesystem of the path; determined by the path if not given.
        trials: The trials. By default, they are read from the folder.
        default_metric: The metric to compare if a method is called without one. If only the mode is given, it is the
            value that a function returns.
        default_mode: "min" or "max", if a method is called without a mode.

    Raises:
        ValueError: The folder holds no experiment.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str] | ExperimentFolder,
        *,
        storage_filesystem: Any = None,
        trials: Sequence[Trial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
    ) -> None:
        self._folder = (
            experiment_checkpoint_path
            if isinstance(experiment_checkpoint_path, ExperimentFolder)
            else _find_folder(experiment_checkpoint_path, storage_filesystem)
        )
        if default_mode is not None:
            arguments.choice("default_mode", default_mode, ("min", "max"))
            default_metric = default_metric or DEFAULT_METRIC
        self.default_metric, self.default_mode = default_metric, default_mode
        self._has_statistics = True
        self._folders: Sequence[ExperimentFolder] = ()  # of several experiments that have run together
        if trials is None:
            if not self._folder.exists():
                raise ValueError(
                    f"{self._folder.location} holds no experiment: `experiment_checkpoint_path` must be the folder "
                    "of one."
                )
            trials = read_trials(self._folder, self._folder.read_journal())
            self._has_statistics = False
        self.trials = list(trials)

    def _folder_of(self, trial: Trial) -> ExperimentFolder:
        return self._folders[trial.experiment] if self._folders else self._folder

    def _load_statistics(self) -> None:
        """Complete the statistics of trials that were restored, which have seen only some of their results."""
        if self._has_statistics:
            return
        for trial in self.trials:
            last = trial.last_result
            trial.metric_analysis.clear()
            for row in self._folder_of(trial).history(trial):
                trial.update_last_result(row["metrics"])
            trial.last_result = last
        self._has_statistics = True

    @property
    def experiment_path(self) -> str:
        """The experiment's folder."""
        return self._folder.path

    # ------------------------------------------------------------ the best

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """Return the best trial; None if no trial has a value to compare.

        Args:
            metric: The metric to compare.
            mode: "min" or "max".
            scope: Which value of a trial counts: its "last", the best of "all", its average "avg", or the average of
                the last five or ten, "last-5-avg" and "last-10-avg".
            filter_nan_and_inf: Whether to leave out trials whose value is not finite.

        Raises:
            ValueError: There is no metric or mode, or the scope is unknown.
        """
        metric, mode = self._objective(metric, mode)
        arguments.choice("scope", scope, SCOPES)
        if scope != "last":
            self._load_statistics()
        which = mode if scope == "all" else scope
        best: tuple[float, Trial] | None = None
        for trial in self.trials:
            value = trial.metric_analysis.get(metric, {}).get(which)
            if value is None or (filter_nan_and_inf and not math.isfinite(value)):
                continue
            score = value if mode == "max" else -value
            if best is None or score > best[0]:
                best = score, trial
        return None if best is None else best[1]

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """Return the configuration of the best trial; None if there is none."""
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else trial.config

    @property
    def best_trial(self) -> Trial:
        """The best trial by the default metric and mode.

        Raises:
            ValueError: There is no metric or mode, or no trial has reported the metric.
        """
        trial = self.get_best_trial()
        if trial is None:
            known = sorted({name for each in self.trials for name in each.metric_analysis})
            raise ValueError(
                f"no trial has a finite value of {self.default_metric!r}; the trials reported {known}."
            )
        return trial

    @property
    def best_config(self) -> dict[str, Any]:
        """The configuration of the best trial."""
        return self.best_trial.config

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of the best trial."""
        return self.best_trial.last_result

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial."""
        return self.get_best_checkpoint(self.best_trial)

    @property
    def best_dataframe(self) -> pd.DataFrame:
        """All results of the best trial, one per row."""
        return self.trial_dataframes[self.best_trial.trial_id]

    @property
    def best_result_df(self) -> pd.DataFrame:
        """The last result of the best trial, as a table with one row."""
        return self._frame([self._row(self.best_trial, self.best_result)]).set_index("trial_id")

    def get_best_checkpoint(
        self, trial: Trial, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """Return the kept checkpoint of a trial that was reported with the best metric, or None."""
        metric, mode = self._objective(metric, mode)
        scored: list[tuple[float, str]] = []
        for each in trial.kept:
            value = dict(flat(each.metrics)).get(metric)
            if isinstance(value, Real) and not math.isnan(value):
                scored.append((float(value), each.name))
        if not scored:
            return None
        _, name = (max if mode == "max" else min)(scored, key=lambda each: each[0])
        folder = self._folder_of(trial)
        return Checkpoint(f"{folder.trial_path(trial)}/{name}", folder.filesystem)

    def get_last_checkpoint(
        self, trial: Trial | None = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """Return the latest checkpoint of a trial; by default, of the trial that has trained for longest."""
        found = trial or self.get_best_trial(metric, mode)
        return None if found is None else found.checkpoint

    # ------------------------------------------------------------ tables

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last result of each trial, by its id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> pd.DataFrame:
        """The last result of each trial, one per row, with its id as the index."""
        rows = [{"trial_id": trial.trial_id, **self._row(trial, trial.last_result)} for trial in self.trials]
        return self._frame(rows).set_index("trial_id")

    @property
    def trial_dataframes(self) -> dict[str, pd.DataFrame]:
        """All results of each trial, by its id."""
        return {
            trial.trial_id: self._frame([row["metrics"] for row in self._folder_of(trial).history(trial)])
            for trial in self.trials
        }

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pd.DataFrame:
        """Return a table of the trials that have reported, with their metrics and configurations.

        Names of nested values are joined by slashes, such as `config/optimizer/lr`.

        Args:
            metric: The metric that selects a result of each trial.
            mode: "min" or "max": take the result with the lowest or the highest value. By default, take the last one.

        Raises:
            ValueError: There is a mode without a metric, or the mode is unknown.
        """
        if mode is not None:
            arguments.choice("mode", mode, ("min", "max"))
            if metric is None:
                raise ValueError(f"`mode` is {mode!r} without a `metric`: name the metric to compare.")
        reported = [trial for trial in self.trials if trial.last_result]
        return self._frame([self._row(trial, self._select(trial, metric, mode)) for trial in reported])

    def _select(self, trial: Trial, metric: str | None, mode: str | None) -> Mapping[str, Any]:
        if metric is None or mode is None:
            return trial.last_result
        found = [row["metrics"] for row in self._folder_of(trial).history(trial)]
        scored = [each for each in found if metric in each and each[metric] == each[metric]]  # not NaN
        choose = max if mode == "max" else min
        return choose(scored, key=lambda metrics: metrics[metric]) if scored else trial.last_result

    def _row(self, trial: Trial, result: Mapping[str, Any]) -> dict[str, Any]:
        row = {key: value for key, value in flat(result) if not key.startswith("config/")}
        row.update({f"config/{path}": value for path, value in flat(trial.config)})
        row["logdir"] = self._folder_of(trial).trial_path(trial)
        return row

    @staticmethod
    def _frame(rows: list[Any]) -> pd.DataFrame:
        frame: pd.DataFrame = _optional.load("pandas", "ExperimentAnalysis").DataFrame(rows)
        return frame

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Return the configuration of each trial, by its id.

        Args:
            prefix: Whether nested names are joined by slashes, and begin with `config/`.
        """
        return {
            trial.trial_id: {f"config/{path}": value for path, value in flat(trial.config)}
            if prefix
            else trial.config
            for trial in self.trials
        }

    def _objective(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric, mode = metric or self.default_metric, mode or self.default_mode
        if metric is None:
            raise ValueError(
                "No `metric` has been passed, and no default metric is set: name the metric to compare."
            )
        if mode is None:
            raise ValueError('No `mode` has been passed, and no default mode is set: pass "min" or "max".')
        arguments.choice("mode", mode, ("min", "max"))
        return metric, mode


def _find_folder(path: str | os.PathLike[str], filesystem: Any) -> ExperimentFolder:
    """Return the folder of an experiment by its path, or by that of a file in it."""
    found, within = folders.locate(path, filesystem)
    is_file = found.get_file_info(within).type == pafs.FileType.File
    return open_folder(posixpath.dirname(within) if is_file else within, found)
