"""The results of an experiment, one per trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from skate.air import _arguments as arguments
from skate.air import _optional
from skate.train import Result
from skate.train._storage.run_folder import RunRecord
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune.experiment import Trial

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = ["ResultGrid"]


class ResultGrid:
    """The results of an experiment, in the order of its trials.

    `len(results)`, `results[i]` and iteration give the results of single trials.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        folder: ExperimentFolder,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        self._trials = trials
        self._folder = folder
        self._metric, self._mode = metric, mode
        self._results: list[Result | None] = [None] * len(trials)

    @property
    def experiment_path(self) -> str:
        """The experiment's folder."""
        return str(self._folder.path)

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The filesystem of `experiment_path`."""
        return self._folder.filesystem

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """Return the result of the best trial.

        Args:
            metric: The metric to compare; that of TuneConfig by default.
            mode: "min" or "max"; that of TuneConfig by default.
            scope: Which value of a trial counts: its "last", the best of "all", its average "avg", or the average of
                the last five or ten, "last-5-avg" and "last-10-avg".
            filter_nan_and_inf: Whether to leave out trials whose value is not finite.

        Raises:
            ValueError: No metric or mode is given.
            RuntimeError: No trial has reported the metric.
        """
        metric = metric or self._metric
        mode = mode or self._mode
        if metric is None or mode is None:
            raise ValueError(
                "`metric` and `mode` are needed to find the best result: pass them to get_best_result(), or set them "
                "in TuneConfig."
            )
        arguments.choice("mode", mode, ("min", "max"))
        arguments.choice("scope", scope, ("all", "last", "avg", "last-5-avg", "last-10-avg"))
        which = mode if scope == "all" else scope
        best: tuple[float, int] | None = None
        for index, trial in enumerate(self._trials):
            value = trial.metric_analysis.get(metric, {}).get(which)
            if value is None or (filter_nan_and_inf and not math.isfinite(value)):
                continue
            score = value if mode == "max" else -value
            if best is None or score > best[0]:
                best = score, index
        if best is None:
            raise RuntimeError(self._why_no_best(metric, filter_nan_and_inf))
        return self[best[1]]

    def _why_no_best(self, metric: str, filtered: bool) -> str:
        known = sorted({name for trial in self._trials for name in trial.metric_analysis})
        text = f"No best trial found for the given metric: {metric}. "
        if metric in known and filtered:
            return text + "All its values are NaN or infinite; pass filter_nan_and_inf=False to compare them."
        return text + f"The trials reported {known}.{arguments.hint_for_unknown(metric, known)}"

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pd.DataFrame:
        """Return a table of the trials, with their metrics and configurations.

        Args:
            filter_metric: Take, from each trial, the result that is best by this metric; its last one by default.
            filter_mode: "min" or "max".
        """
        pandas = _optional.load("pandas", "ResultGrid.get_dataframe")
        rows = []
        for trial in self._trials:
            result = trial.last_result
            if filter_metric is not None:
                arguments.choice("filter_mode", filter_mode, ("min", "max"))
                choose = max if filter_mode == "max" else min
                found = [
                    row["metrics"] for row in self._folder.history(trial) if filter_metric in row["metrics"]
                ]
                result = choose(found, key=lambda metrics: metrics[filter_metric]) if found else {}
            row = {key: value for key, value in result.items() if key != "config"}
            row.update({f"config/{path}": value for path, value in _flat(trial.config)})
            row["logdir"] = self._folder.trial_path(trial)
            rows.append(row)
        frame: pd.DataFrame = pandas.DataFrame(rows)
        return frame

    @property
    def errors(self) -> list[Exception]:
        """The exceptions of the failed trials."""
        return [trial.error for trial in self._trials if trial.error is not None]

    @property
    def num_errors(self) -> int:
        """The number of failed trials."""
        return sum(trial.status == Trial.ERROR for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        """The number of trials that ended without an error."""
        return sum(trial.status == Trial.TERMINATED for trial in self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, index: int) -> Result:
        found = self._results[index]
        if found is None:
            found = self._results[index] = self._result(self._trials[index])
        return found

    def __iter__(self) -> Iterator[Result]:
        return (self[index] for index in range(len(self)))

    def _result(self, trial: Trial) -> Result:
        return Result(
            metrics=trial.last_result,
            checkpoint=trial.checkpoint,
            error=trial.error,
            path=self._folder.trial_path(trial),
            best_checkpoints=[]
            if trial.checkpoint is None
            else [(trial.checkpoint, trial.checkpoint_metrics)],
            _storage_filesystem=self._folder.filesystem,
            _record=RunRecord(trial.trial_id, config=trial.config),
            _history=self._folder.history(trial),
        )

    def __repr__(self) -> str:
        inner = ",\n".join("  " + repr(result).replace("\n", "\n  ") for result in self)
        return f"ResultGrid<[\n{inner}\n]>"


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value
