"""Checks of the results that trials report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skate.tune.error import TuneError
from skate.tune.experiment import Trial

_AUTOMATIC = frozenset(
    (
        "config", "date", "done", "experiment_tag", "hostname", "iterations_since_restore", "node_ip", "pid",
        "time_since_restore", "time_this_iter_s", "timestamp", "trial_id",
    )
)  # fmt: skip


def check_metric(trial: Trial, result: Mapping[str, Any], metric: str | None) -> None:
    """Check that a result has the metric to optimize.

    Raises:
        TuneError: It does not.
    """
    if metric is not None and metric not in result:
        raise TuneError(
            f"trial {trial} reported no {metric!r}, which TuneConfig names as the metric. It reported "
            f"{_reported(result)}."
        )


def reaches_criterion(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a result reaches one of the values at which its trial stops.

    Raises:
        TuneError: The result lacks a metric of the criterion.
    """
    for name, limit in trial.stopping_criterion.items():
        if name not in result:
            raise TuneError(
                f"the stopping criterion {name!r} is not in the result of trial {trial}, which has "
                f"{_reported(result)}."
            )
        if result[name] >= limit:
            return True
    return False


def _reported(result: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in result if name not in _AUTOMATIC)
