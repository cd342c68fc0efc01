"""Reporters, which print the state of an experiment at intervals."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skate.tune.callback import Callback
from skate.tune.experiment import Trial
from skate.tune.result import EPISODE_REWARD_MEAN, MEAN_ACCURACY, MEAN_LOSS, TIME_TOTAL_S, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.tune.stopper import Stopper

__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter"]

DEFAULT_COLUMNS = {
    MEAN_ACCURACY: "acc",
    MEAN_LOSS: "loss",
    TRAINING_ITERATION: "iter",
    TIME_TOTAL_S: "total time (s)",
    EPISODE_REWARD_MEAN: "reward",
}
_ORDER = (Trial.RUNNING, Trial.PAUSED, Trial.PENDING, Trial.TERMINATED, Trial.ERROR)
_OWN_METRICS = (
    "config",
    "done",
    "trial_id",
    "experiment_tag",
    "date",
    "hostname",
    "node_ip",
    "pid",
    "timestamp",
)

_MANY = 1 << 32  # an experiment with this many trials has no limit


class ProgressReporter:
    """The base class of reporters; pass an instance in `RunConfig(progress_reporter=…)`."""

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called when the experiment begins."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Return whether to report now.

        Args:
            trials: All trials of the experiment.
            done: Whether the experiment has ended.
        """
        raise NotImplementedError(f"{type(self).__name__} must define should_report(trials, done).")

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Report the state of the experiment.

        Args:
            trials: All trials of the experiment.
            done: Whether the experiment has ended.
            sys_info: Additional lines.
        """
        raise NotImplementedError(f"{type(self).__name__} must define report(trials, done).")


class CLIReporter(ProgressReporter):
    """Print a table of the trials at intervals.

    Args:
        metric_columns: The metrics to show: names, or titles by name.
        parameter_columns: The parameters to show: names, or titles by name.
        total_samples: The number of trials; by default, that of the experiment.
        max_progress_rows: The maximum number of trials in the table.
        max_error_rows: The maximum number of failed trials that are listed.
        max_column_length: The number of characters after which values are truncated.
        max_report_frequency: The number of seconds between two tables.
        infer_limit: The number of metrics to show if none are given.
        print_intermediate_tables: Whether to print tables before the experiment has ended.
        metric: The metric that determines the best trial; by default, that of TuneConfig.
        mode: "min" or "max"; by default, that of TuneConfig.
        sort_by_metric: Whether the best trials come first.
    """

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        self._metric_columns = None if metric_columns is None else _titles(metric_columns)
        self._parameter_columns = None if parameter_columns is None else _titles(parameter_columns)
        self._total = total_samples
        self._max_rows, self._max_errors = max_progress_rows, max_error_rows
        self._max_length = max_column_length
        self._interval = max_report_frequency
        self._infer_limit = infer_limit
        self._intermediate = True if print_intermediate_tables is None else print_intermediate_tables
        self._metric, self._mode = metric, mode
        self._sort_by_metric = sort_by_metric
        self._last = 0.0

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the metric and the mode of the experiment, unless the reporter has its own."""
        self.set_search_properties(metric, mode)
        if self._total is None and total_samples is not None and total_samples < _MANY:
            self._total = total_samples

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """Set the metric and the mode, unless the reporter has its own, and return True."""
        self._metric, self._mode = self._metric or metric, self._mode or mode
        return True

    def set_total_samples(self, total_samples: int) -> None:
        """Set the number of trials."""
        self._total = total_samples

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show a metric, under a title."""
        columns = dict(DEFAULT_COLUMNS) if self._metric_columns is None else self._metric_columns
        self._metric_columns = {**columns, metric: representation or metric}

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show a parameter, under a title."""
        self._parameter_columns = {**(self._parameter_columns or {}), parameter: representation or parameter}

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Return whether the interval or the experiment has ended."""
        now = time.monotonic()
        if done or (self._intermediate and now - self._last >= self._interval):
            self._last = now
            return True
        return False

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Print the table."""
        sys.stdout.write(self.describe(trials, *sys_info) + "\n")
        sys.stdout.flush()

    def describe(self, trials: list[Trial], *sys_info: Any) -> str:
        """Return the state of the experiment as text."""
        from rich.console import Console

        counts = Counter(trial.status for trial in trials)
        states = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
        console = Console(width=160, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self._table(trials))
        lines = [
            "== Status ==",
            *map(str, sys_info),
            f"Number of trials: {len(trials)}{f'/{self._total}' if self._total else ''} ({states})",
            capture.get().rstrip(),
        ]
        failed = [trial for trial in trials if trial.status == Trial.ERROR]
        if failed:
            lines.append(f"Number of errored trials: {len(failed)}")
            lines += [f"{trial}: {type(trial.error).__name__}" for trial in failed[: self._max_errors]]
        return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"

    def _table(self, trials: list[Trial]) -> Any:
        from rich.table import Table

        metrics = self._metric_columns if self._metric_columns is not None else self._infer_metrics(trials)
        parameters = self._parameter_columns
        if parameters is None:
            names = dict.fromkeys(name for trial in trials for name in trial.evaluated_params)
            parameters = {name: name.removeprefix("config/") for name in names}
        table = Table(box=None, pad_edge=False)
        for title in ("Trial name", "status", *parameters.values(), *metrics.values()):
            table.add_column(title, no_wrap=True)
        for trial in self._sorted(trials)[: self._max_rows]:
            table.add_row(
                str(trial),
                trial.status,
                *(self._format(_parameter(trial, name)) for name in parameters),
                *(self._format(trial.last_result.get(name)) for name in metrics),
            )
        return table

    def _infer_metrics(self, trials: list[Trial]) -> dict[str, str]:
        """Return the default metrics that trials report, and some others."""
        reported = {name: value for trial in trials for name, value in trial.last_result.items()}
        found = {name: title for name, title in DEFAULT_COLUMNS.items() if name in reported}
        others = [
            name
            for name, value in reported.items()
            if name not in found
            and name not in _OWN_METRICS
            and not name.endswith(("_since_restore", "_this_iter_s"))
            and isinstance(value, int | float)
        ]
        return {**found, **{name: name for name in others[: self._infer_limit]}}

    def _sorted(self, trials: list[Trial]) -> list[Trial]:
        def score(trial: Trial) -> tuple[bool, float]:
            value = trial.last_result.get(self._metric or "")
            if not isinstance(value, int | float) or value != value:
                return True, 0.0
            return False, float(value) if self._mode == "min" else -float(value)

        if self._sort_by_metric and self._metric is not None:
            return sorted(trials, key=score)
        return sorted(trials, key=lambda trial: _ORDER.index(trial.status))

    def _format(self, value: Any) -> str:
        text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        return text if len(text) <= self._max_length else text[: self._max_length - 1] + "…"


class JupyterNotebookReporter(CLIReporter):
    """Show a table of the trials in a notebook.

    Args:
        overwrite: Whether each table replaces the previous one.
        **options: Arguments of `CLIReporter`.
    """

    def __init__(self, overwrite: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self._overwrite = overwrite

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Show the table."""
        try:
            from IPython.display import clear_output
        except ImportError:
            pass  # not in a notebook
        else:
            if self._overwrite:
                clear_output(wait=True)
        super().report(trials, done, *sys_info)


class ReporterCallback(Callback):
    """Calls a reporter after each step of the loop.

    Args:
        reporter: The user's reporter.
        metric: The metric to optimize.
        mode: "min" or "max".
    """

    def __init__(self, reporter: ProgressReporter, metric: str | None, mode: str | None) -> None:
        self._reporter = reporter
        self._metric, self._mode = metric, mode

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Set the reporter up."""
        self._reporter.setup(
            start_time=time.time(), total_samples=num_samples, metric=self._metric, mode=self._mode
        )

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Report if `should_report` of the reporter returns true."""
        if self._reporter.should_report(trials, done=False):
            self._reporter.report(trials, False)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Report the end."""
        if self._reporter.should_report(trials, done=True):
            self._reporter.report(trials, True)


def _titles(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def _parameter(trial: Trial, name: str) -> Any:
    """Return a sampled value, or one of the configuration by its path."""
    if name in trial.evaluated_params:
        return trial.evaluated_params[name]
    value: Any = trial.config
    for part in name.removeprefix("config/").split("/"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
