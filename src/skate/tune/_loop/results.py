"""Checks of the results that trials report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import lookup

log = logging.getLogger("skate.tune")

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
    if metric is not None and metric not in result and lookup(result, metric) is None:
        raise TuneError(
            f"trial {trial} reported no {metric!r}, which TuneConfig names as the metric. It reported "
            f"{_reported(result)}."
        )


def reaches_criterion(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a result reaches one of the values at which its trial stops.

    A criterion that the first result of a trial does not have is named in a warning.
    """
    if not trial.stopping_criterion:
        return False
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
