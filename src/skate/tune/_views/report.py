"""The report of an experiment: plots, a summary, and a table of the trials."""

from __future__ import annotations

import html
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air import _arguments as arguments
from skate.air import _optional
from skate.tune._views import page
from skate.tune._views.figures import draw
from skate.tune._views.study import Point, finite_points, parameters_of
from skate.tune.experiment import Trial
from skate.tune.result import AUTO_RESULT_KEYS, DEFAULT_METRIC, TIME_TOTAL_S, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.tune.analysis import ExperimentAnalysis

MAX_TRIALS = 100  # rows of the table
MAX_ERRORS = 20
_MAX_CELL = 60
_MAX_ERROR = 4000  # characters
_MAX_IMPORTANT = 3  # parameters in the summary


@dataclass(frozen=True, repr=False)
class Report:
    """Plots and tables of an experiment. A notebook displays it, and `print` writes a summary.

    Attributes:
        name: The name of the experiment.
        metric: The metric that compares the trials.
        figures: Plotly figures: "learning_curves", "history" (the best value so far), "parallel_coordinates",
            "importance" and "slices".
        missing: Why a plot could not be drawn, by its name.
        notes: What a plot leaves out, by its name.
        summary: The number of trials by status, the best value and its configuration, by title.
        columns: The columns of the table of trials.
        trials: Its rows, the best first.
        num_trials: The number of trials, of which `trials` has the best.
        has_best: Whether the first row is the best trial.
        errors: The names of failed trials, and their errors.
    """

    name: str
    metric: str
    figures: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    summary: dict[str, str] = field(default_factory=dict)
    columns: Sequence[str] = ()
    trials: Sequence[Mapping[str, str]] = ()
    num_trials: int = 0
    has_best: bool = False
    errors: Sequence[tuple[str, str]] = ()

    def to_html(self) -> str:
        """Return the report as an HTML page, which needs no network."""
        return page.render(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one HTML file, which needs no network.

        Args:
            path: The file; its folder must exist.

        Returns:
            The path.
        """
        file = Path(path)
        file.write_text(self.to_html(), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        return page.in_frame(self.to_html())

    def __str__(self) -> str:
        width = max(map(len, self.summary))
        return "\n".join(f"{name.ljust(width)}  {value}" for name, value in self.summary.items())

    __repr__ = __str__


def create_report(analysis: ExperimentAnalysis, metric: str | None = None, mode: str | None = None) -> Report:
    """Return the report of an experiment.

    Args:
        analysis: Its trials.
        metric: The metric that compares the trials; the default one of the analysis if not given.
        mode: "min" or "max"; the default one of the analysis if not given.

    Raises:
        ImportError: Plotly or Optuna is not installed.
        ValueError: There is no metric or mode, or no trial has reported the metric.
    """
    _optional.require_extra("tune", "ResultGrid.plot", "plotly", "optuna")
    metric, mode = _objective(analysis, metric, mode)
    points = finite_points(analysis.trials, metric)
    drawn = draw(analysis._folder, points, metric, mode)
    ranked = _rank(analysis.trials, points, mode)
    best = analysis.get_best_trial(metric, mode)
    rows = [_row(trial, metric) for trial in ranked[:MAX_TRIALS]]
    columns = dict.fromkeys(name for row in rows for name in row)
    failed = [trial for trial in analysis.trials if trial.error is not None]
    path = Path(analysis.experiment_path)
    summary = {
        "experiment": path.name,
        "trials": _count(analysis.trials),
        **_describe_best(best, metric, mode),
    }
    if drawn.importance:
        top = list(drawn.importance.items())[:_MAX_IMPORTANT]
        summary["important parameters"] = ", ".join(
            f"{html.unescape(name)} {share:.0%}" for name, share in top
        )
    summary["path"] = str(path)
    return Report(
        name=path.name,
        metric=metric,
        figures=drawn.figures,
        missing=drawn.missing,
        notes=drawn.notes,
        summary=summary,
        columns=list(columns),
        trials=rows,
        num_trials=len(analysis.trials),
        has_best=best is not None,
        errors=[(str(trial), str(trial.error)[-_MAX_ERROR:]) for trial in failed[:MAX_ERRORS]],
    )


def _objective(analysis: ExperimentAnalysis, metric: str | None, mode: str | None) -> tuple[str, str]:
    arguments.text("metric", metric, "the name of a metric", optional=True)
    arguments.choice("mode", mode, ("min", "max", None))
    metric, mode = metric or analysis.default_metric, mode or analysis.default_mode
    known = {name for trial in analysis.trials for name in trial.metric_analysis}
    if metric == DEFAULT_METRIC and metric not in known:
        metric = None  # the default of experiments whose functions return a number
    reported = sorted(known.difference(AUTO_RESULT_KEYS))
    if metric is None or mode is None:
        missing = " and ".join(
            name for name, value in (("`metric`", metric), ("`mode`", mode)) if value is None
        )
        raise ValueError(
            f'no {missing} is set: pass plot(metric=..., mode="min" or "max"), or set them in TuneConfig. '
            f"The trials reported {reported}."
        )
    if known and metric not in known:
        raise ValueError(
            f"no trial has reported {metric!r}; the trials reported {reported}."
            f"{arguments.hint_for_unknown(metric, known)}"
        )
    return metric, mode


def _rank(trials: Sequence[Trial], points: Sequence[Point], mode: str) -> list[Trial]:
    """Return all trials, the best first, and those without a finite value last."""
    sign = -1 if mode == "max" else 1
    values = {point.trial: sign * point.value for point in points}
    return sorted(trials, key=lambda trial: values.get(trial, math.inf))


def _row(trial: Trial, metric: str) -> dict[str, str]:
    result = trial.last_result
    value = trial.metric_analysis.get(metric, {}).get("last")
    return {
        "trial": str(trial),
        "status": trial.status,
        metric: "" if value is None else _cell(value),
        "iterations": _cell(result.get(TRAINING_ITERATION, "")),
        "seconds": f"{result[TIME_TOTAL_S]:.1f}" if TIME_TOTAL_S in result else "",
        **{name: _cell(value) for name, value in parameters_of(trial).items()},
    }


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"


def _count(trials: Sequence[Trial]) -> str:
    counts = Counter(trial.status for trial in trials)
    parts = ", ".join(f"{number} {status.lower()}" for status, number in sorted(counts.items()))
    return f"{len(trials)} ({parts})" if parts else "0"


def _describe_best(best: Trial | None, metric: str, mode: str) -> dict[str, str]:
    goal = "smallest" if mode == "min" else "largest"
    if best is None:
        return {f"{goal} {metric}": "none: no trial has a finite value"}
    config = ", ".join(f"{name}={_cell(value)}" for name, value in parameters_of(best).items())
    return {
        f"{goal} {metric}": f"{_cell(best.metric_analysis[metric]['last'])} (trial {best})",
        "best configuration": config or "empty",
    }
