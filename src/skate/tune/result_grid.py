"""The results of an experiment, one per trial."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from skate._api.html_tables import facts_html, table_html
from skate.air import _arguments as arguments
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._experiment.trial_result import Result, result_of
from skate.tune.analysis import ExperimentAnalysis
from skate.tune.experiment import Trial
from skate.tune.result import TRAINING_ITERATION

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from skate.tune._views.report import Report

__all__ = ["ResultGrid"]

_MAX_HTML_ROWS = 20


class ResultGrid:
    """The results of an experiment, in the order of its trials.

    `len(results)`, `results[i]` and iteration give the results of single trials.

    Args:
        experiment_analysis: The trials of the experiment.
    """

    def __init__(self, experiment_analysis: ExperimentAnalysis) -> None:
        self._experiment_analysis = experiment_analysis
        self._trials = experiment_analysis.trials
        self._results: list[Result | None] = [None] * len(self._trials)

    @property
    def _folder(self) -> ExperimentFolder:
        return self._experiment_analysis._folder

    @property
    def experiment_path(self) -> str:
        """The experiment's folder."""
        return self._folder.path

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
            metric: The metric to compare; by default, that of TuneConfig. It is not needed if there is only one trial.
            mode: "min" or "max"; by default, that of TuneConfig.
            scope: Which value of a trial counts: its "last", the best of "all", its average "avg", or the average of
                the last five or ten, "last-5-avg" and "last-10-avg".
            filter_nan_and_inf: Whether to leave out trials whose value is not finite.

        Raises:
            ValueError: No metric or mode is given.
            RuntimeError: No trial has reported the metric.
        """
        analysis = self._experiment_analysis
        if len(self) == 1 and metric is None and mode is None:
            return self[0]
        metric = metric or analysis.default_metric
        mode = mode or analysis.default_mode
        if metric is None or mode is None:
            raise ValueError(
                "`metric` and `mode` are needed to find the best result: pass them to get_best_result(), or set them "
                "in TuneConfig."
            )
        best = analysis.get_best_trial(metric, mode, scope, filter_nan_and_inf)
        if best is None:
            raise RuntimeError(self._why_no_best(metric, filter_nan_and_inf))
        return self[self._trials.index(best)]

    def _why_no_best(self, metric: str, filtered: bool) -> str:
        known = sorted({name for trial in self._trials for name in trial.metric_analysis})
        text = f"No best trial found: no trial has a value of {metric!r} to compare. "
        if metric in known and filtered:
            return text + "All its values are NaN or infinite; pass filter_nan_and_inf=False to compare them."
        return text + f"The trials reported {known}.{arguments.hint_for_unknown(metric, known)}"

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pd.DataFrame:
        """Return a table of the trials, with their metrics and configurations.

        Args:
            filter_metric: The metric by which the best result of each trial is selected. By default, the last result
                is selected.
            filter_mode: "min" or "max".
        """
        return self._experiment_analysis.dataframe(metric=filter_metric, mode=filter_mode)

    def plot(self, metric: str | None = None, mode: str | None = None) -> Report:
        """Return plots of the trials: learning curves, the best value so far, and how parameters affect the metric.

        A notebook displays the report, `print` writes a summary, `save(path)` writes one HTML file, and `figures`
        contains the Plotly figures by name. Trials are compared by their last value of the metric. Needs Plotly and
        Optuna.

        Args:
            metric: The metric that compares the trials; that of TuneConfig by default.
            mode: "min" or "max"; that of TuneConfig by default.

        Raises:
            ImportError: Plotly or Optuna is not installed.
            ValueError: No metric or mode is given, or no trial has reported the metric.
        """
        from skate.tune._views.report import create_report

        return create_report(self._experiment_analysis, metric, mode)

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
        return len(self._results)

    def __getitem__(self, index: int) -> Result:
        found = self._results[index]
        if found is None:
            found = self._results[index] = result_of(
                self._experiment_analysis._folder_of(self._trials[index]), self._trials[index]
            )
        return found

    def __iter__(self) -> Iterator[Result]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        inner = ",\n".join("  " + repr(result).replace("\n", "\n  ") for result in self)
        return f"ResultGrid<[\n{inner}\n]>"

    def _repr_html_(self) -> str:
        analysis = self._experiment_analysis
        metric, mode = analysis.default_metric, analysis.default_mode
        trials, best = list(self._trials), []
        if metric is not None and mode is not None:
            scores = {trial: _score(trial.last_result.get(metric), mode) for trial in trials}
            trials.sort(key=scores.__getitem__)
            best = [0] if trials and math.isfinite(scores[trials[0]]) else []
        names = list(dict.fromkeys(name for trial in trials for name in trial.evaluated_params))
        rows = [
            (
                str(trial),
                trial.status,
                *(trial.evaluated_params.get(name) for name in names),
                trial.last_result.get(TRAINING_ITERATION),
                *([trial.last_result.get(metric)] if metric is not None else []),
            )
            for trial in trials[:_MAX_HTML_ROWS]
        ]
        columns = [
            *("trial", "status"),
            *(name.removeprefix("config/") for name in names),
            *("iterations", *([metric] if metric is not None else [])),
        ]
        facts = {"trials": len(self), "errors": self.num_errors or None, "path": self.experiment_path}
        left = len(trials) - _MAX_HTML_ROWS
        note = f"… and {left} more" if left > 0 else ""
        return facts_html("ResultGrid", facts, table_html(columns, rows, bold=best, note=note))


def _score(value: Any, mode: str) -> float:
    """Return a number that is smaller for better trials, and infinite without a finite value."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return math.inf
    return float(value) if mode == "min" else -float(value)
