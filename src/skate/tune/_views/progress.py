"""The progress of an experiment: a table of its trials while it runs, and a summary at the end."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from skate._api import progress
from skate.tune.callback import Callback
from skate.tune.experiment import Trial
from skate.tune.result import TIME_TOTAL_S, TRAINING_ITERATION
from skate.tune.stopper import Stopper

log = logging.getLogger("skate.tune")

_MAX_ROWS = 12
_MAX_PARAMETERS = 4
_STATES = (Trial.RUNNING, Trial.PENDING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR)


class Progress(Callback):
    """Shows the trials of an experiment.

    Args:
        name: The name of the experiment.
        path: Its folder.
        metric: The metric to optimize.
        mode: "min" or "max".
        total: The number of trials; None if it is not known.
    """

    def __init__(
        self,
        name: str,
        path: str,
        metric: str | None = None,
        mode: str | None = None,
        total: int | None = None,
    ) -> None:
        self._name, self._path = name, path
        self._metric, self._mode = metric, mode
        self._total = total
        self._counts: Counter[str] = Counter()
        self._status: dict[Trial, str] = {}
        self._running: dict[Trial, None] = {}
        self._best: tuple[float, Trial] | None = None
        self._begun = time.monotonic()
        self._shown: progress.Shown | None = None

    # ------------------------------------------------------------ events

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Show the start."""
        log.info("experiment %s starts: %s", self._name, self._path)
        self._shown = progress.show(self.view, logs_end=False)  # `on_experiment_end` logs the summary

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Count the trial."""
        self.update(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Compare the result with the best one."""
        self.compare(trial, result)

    def compare(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Compare a result with the best one."""
        value = result.get(self._metric) if self._metric is not None else None
        if isinstance(value, int | float) and math.isfinite(value):
            score = -value if self._mode == "min" else value
            if self._best is None or score > self._best[0]:
                self._best = score, trial

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Count the trial."""
        self.update(trial)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Count the trial."""
        self.update(trial)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Count the trial, and log its error."""
        self.update(trial)
        log.warning("trial %s failed: %s", trial, last_line(trial.error))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Log the summary."""
        self._best = None  # by the last results, as ResultGrid.get_best_result() does
        for trial in trials:
            self.update(trial)
            self.compare(trial, trial.last_result)
        self.close()
        took = time.monotonic() - self._begun
        log.info("experiment %s finished after %.1f s: %s", self._name, took, self.describe())

    def close(self) -> None:
        """Remove the table."""
        if self._shown is not None:
            self._shown.close()
            self._shown = None

    def update(self, trial: Trial) -> None:
        """Count a trial by its state."""
        before = self._status.get(trial)
        if before is not None:
            self._counts[before] -= 1
        self._status[trial] = trial.status
        self._counts[trial.status] += 1
        if trial.status == Trial.RUNNING:
            self._running[trial] = None
        else:
            self._running.pop(trial, None)

    # ------------------------------------------------------------ texts

    def describe(self) -> str:
        """Return the trials by state, and the best result, in one line."""
        parts = [f"{self._counts[state]} {state.lower()}" for state in _STATES if self._counts[state]]
        text = ", ".join(parts) or "no trials"
        if self._best is not None:
            trial = self._best[1]
            value = -self._best[0] if self._mode == "min" else self._best[0]
            text += f"; best {self._metric} {value:.6g} ({trial}: {_parameters(trial.evaluated_params)})"
        return text

    def view(self) -> progress.View:
        """Return the current state. It is called in another thread while trials report."""
        running = list(self._running)
        titles = ("iterations", "seconds", *([self._metric] if self._metric else []))
        columns = (
            progress.Column("trial", is_number=False),
            progress.Column("parameters", is_number=False),
            *map(progress.Column, titles),
        )
        ended = self._counts[Trial.TERMINATED] + self._counts[Trial.ERROR]
        left = len(running) - _MAX_ROWS
        return progress.View(
            self._name,
            time.monotonic() - self._begun,
            facts=(self.describe(),),
            bar=progress.Bar(ended, self._total, "trials") if self._total else None,
            table=progress.Table(columns, tuple(map(self._row, running[:_MAX_ROWS]))),
            footer=f"… and {left} more" if left > 0 else "",
        )

    def _row(self, trial: Trial) -> tuple[str, ...]:
        result = trial.last_result
        return (
            str(trial),
            _parameters(trial.evaluated_params),
            str(result.get(TRAINING_ITERATION, "")),
            f"{result.get(TIME_TOTAL_S, 0.0):.1f}",
            *([_format(result.get(self._metric))] if self._metric else []),
        )


def _parameters(params: Mapping[str, Any]) -> str:
    shown = [
        f"{name.removeprefix('config/')}={_format(value)}"
        for name, value in list(params.items())[:_MAX_PARAMETERS]
    ]
    return ", ".join(shown) + (", …" if len(params) > _MAX_PARAMETERS else "")


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "" if value is None else str(value)
    return text if len(text) <= 20 else text[:19] + "…"


def last_line(error: BaseException | None) -> str:
    """Return the last line of an error, which names its cause."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
