"""Checks of the results that trials report."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import lookup
from skate.tune.result import DEFAULT_METRIC, DONE

if TYPE_CHECKING:
    from skate.tune._loop.settings import Settings

log = logging.getLogger("skate.tune")

_NOT_STRICT = "TUNE_DISABLE_STRICT_METRIC_CHECKING"  # the variable that allows results without the metric

_AUTOMATIC = frozenset(
    (
        "config", "date", "done", "experiment_tag", "hostname", "iterations_since_restore", "node_ip", "pid",
        "time_since_restore", "time_this_iter_s", "timestamp", "trial_id",
    )
)  # fmt: skip


def required_metrics(settings: Settings) -> tuple[str, ...]:
    """Return the metrics that each result must have: those of TuneConfig, the scheduler and the search algorithm."""
    if os.environ.get(_NOT_STRICT) == "1":
        return ()
    found: list[str] = []
    for names in (settings.metric, settings.scheduler.metric, settings.search.metric):
        found += [names] if isinstance(names, str) else names or []
    return tuple(name for name in dict.fromkeys(found) if name != DEFAULT_METRIC or name == settings.metric)


def check_metrics(trial: Trial, result: Mapping[str, Any], metrics: Sequence[str]) -> None:
    """Check that a result has the metrics to optimize.

    Raises:
        TuneError: It does not.
    """
    for metric in metrics:
        if metric not in result and lookup(result, metric) is None:
            raise TuneError(
                f"trial {trial} reported no {metric!r}, which TuneConfig, the scheduler or the search algorithm names "
                f"as the metric. It reported {_reported(result)}. Set {_NOT_STRICT}=1 to allow this."
            )


def reaches_criterion(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a result reaches one of the values at which its trial stops, or is marked as the last one.

    A criterion that the first result of a trial does not have is named in a warning.
    """
    if not trial.stopping_criterion:
        return bool(result.get(DONE))
    if not trial.last_result:
        for name in trial.stopping_criterion:
            if lookup(result, name) is None:
                log.warning(
                    "the stopping criterion %r is not in the first result of trial %s, which has %s: the trial runs to "
                    "its end unless it reports it.",
                    name,
                    trial,
                    _reported(result),
                )
    return trial.should_stop(result)


def _reported(result: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in result if name not in _AUTOMATIC)
