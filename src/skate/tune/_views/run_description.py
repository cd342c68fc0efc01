"""Describes an experiment for its run record: trials, parameters, and the best result."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skate.tune._views.progress import last_line
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import flat, lookup
from skate.tune.result import (
    AUTO_RESULT_KEYS,
    DONE,
    EXPERIMENT_TAG,
    TIME_TOTAL_S,
    TRAINING_ITERATION,
    TRIAL_ID,
)
from skate.util._run_records import as_plain

_MAX_TRIALS = 2000  # the latest
_MAX_NAMES = 30  # of parameters and of metrics
_NO_METRICS = frozenset((*AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, TRIAL_ID))

_State = tuple[
    str, dict[str, Any], dict[str, Any]
]  # the status of a trial, its last result and its configuration


class RunDescription:
    """The details of a running experiment. It is called in another thread, so it only reads.

    Args:
        trials: Returns all trials.
        metric: The metric to optimize.
        mode: "min" or "max".
    """

    def __init__(self, trials: Callable[[], Sequence[Trial]], metric: str | None, mode: str | None) -> None:
        self._trials = trials
        self._metric, self._mode = metric, mode
        self._rows: dict[Trial, tuple[_State, dict[str, Any]]] = {}  # most trials have not changed since

    def __call__(self) -> dict[str, Any]:
        """Return the latest trials, the names of their parameters, and the best trial."""
        trials = list(self._trials())
        latest = trials[-_MAX_TRIALS:]
        self._rows = {trial: self._row(trial) for trial in latest}
        rows = [row for _, row in self._rows.values()]
        best = self._best(trials)
        return {
            "summary": self._summary(trials, best),
            "metric": self._metric,
            "mode": self._mode,
            "parameters": _parameters(latest, rows),
            "trials": rows,
            "trials_total": len(trials),
            "trials_by_status": Counter(trial.status for trial in trials),
            "best": None if best is None else best.trial_id,
        }

    def _row(self, trial: Trial) -> tuple[_State, dict[str, Any]]:
        state = trial.status, trial.last_result, trial.config
        known = self._rows.get(trial)
        if known is not None and all(map(_is_same, known[0], state)):
            return known
        status, result, config = state
        return state, {
            "id": trial.trial_id,
            "status": status,
            "config": {name: as_plain(value) for name, value in itertools.islice(flat(config), _MAX_NAMES)},
            "iteration": as_plain(result.get(TRAINING_ITERATION, 0)),
            "time_total_s": as_plain(result.get(TIME_TOTAL_S)),
            "metrics": self._metrics(result),
            "error": None if trial.error is None else as_plain(last_line(trial.error)),
        }

    def _metrics(self, result: Mapping[str, Any]) -> dict[str, Any]:
        reported = {name: value for name, value in result.items() if name not in _NO_METRICS}
        if self._metric is not None:  # the first, so that it is among those that are kept
            reported = {self._metric: lookup(result, self._metric), **reported}
        plain = ((name, as_plain(value)) for name, value in flat(reported))
        numbers = ((name, value) for name, value in plain if _is_number(value))
        return dict(itertools.islice(numbers, _MAX_NAMES))

    def _best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the trial with the best last result, as `ResultGrid.get_best_result()` does."""
        if self._metric is None:
            return None
        found = [(as_plain(lookup(trial.last_result, self._metric)), trial) for trial in trials]
        scored = [(value, trial) for value, trial in found if _is_number(value)]
        choose = min if self._mode == "min" else max
        return choose(scored, key=lambda each: each[0])[1] if scored else None

    def _summary(self, trials: Sequence[Trial], best: Trial | None) -> str:
        counts = Counter(trial.status for trial in trials)
        text = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items()))
        if best is not None and self._metric is not None:
            value = as_plain(lookup(best.last_result, self._metric))
            text += f"; best {self._metric} {value:.4g}" if _is_number(value) else ""
        return text or "no trials yet"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(one: object, other: object) -> bool:
    return one is other


def _parameters(trials: Sequence[Trial], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the sampled parameters or, if nothing is sampled, of all."""
    sampled = dict.fromkeys(name for trial in trials for name in trial.evaluated_params)
    found = sampled or dict.fromkeys(name for row in rows for name in row["config"])
    return [str(name) for name in itertools.islice(found, _MAX_NAMES)]
