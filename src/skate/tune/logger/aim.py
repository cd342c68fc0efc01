"""Log results to Aim."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.tune.logger._values import as_number, experiment_folder, flatten, step_of
from skate.tune.logger.logger import LoggerCallback
from skate.tune.result import CONFIG_PREFIX, NODE_IP, PID, TIME_TOTAL_S, TIMESTAMP, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["AimLoggerCallback"]

log = logging.getLogger("skate.tune")

PREFIX = "ray/tune/"
NOT_TRACKED = (CONFIG_PREFIX, PID, TIMESTAMP, TIME_TOTAL_S, TRAINING_ITERATION)


class AimLoggerCallback(LoggerCallback):
    """Logs each trial of an experiment as a run of Aim.

    The configuration is stored as `hparams`, with the paths of nested values joined by slashes, and the numbers of the
    results as metrics `ray/tune/…`. A trial may report `epoch` and `context`, which Aim stores with them. A trial that
    is restarted or restored from a checkpoint continues its run.

    Args:
        repo: The Aim repository, as a path or an `aim.Repo`; the experiment's folder if not given.
        experiment_name: The name of the experiment in Aim; that of the experiment if not given.
        metrics: The metrics to log; all if not given.
        **aim_run_kwargs: Arguments of `aim.Run`. It does not record the driver's output and machine by default.

    Raises:
        ImportError: aim is not installed.
        ValueError: `metrics` is empty.
    """

    def __init__(
        self,
        repo: Any = None,
        experiment_name: str | None = None,
        metrics: list[str] | None = None,
        **aim_run_kwargs: Any,
    ) -> None:
        _optional.load("aim", "AimLoggerCallback")
        if metrics is not None and not metrics:
            raise ValueError("`metrics` is empty: name at least one metric, or give None to log all")
        self._repo = repo
        self._experiment_name = experiment_name
        self._metrics = None if metrics is None else set(metrics)
        self._options = {"capture_terminal_logs": False, "system_tracking_interval": None, **aim_run_kwargs}
        self._hashes: dict[str, str] = {}  # of the run of each trial
        self._runs: dict[str, Any] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Start the run of a trial, or continue it."""
        if trial.trial_id not in self._runs:
            self._runs[trial.trial_id] = self._open(trial)
        run = self._runs[trial.trial_id]
        params = {name: _parameter(value) for name, value in flatten(trial.config).items()}
        omitted = sorted(name for name, value in params.items() if value is _UNSUPPORTED)
        if omitted:
            log.info("trial %s: Aim cannot store the parameters %s", trial, ", ".join(omitted))
        run["hparams"] = {name: value for name, value in params.items() if value is not _UNSUPPORTED}

    def _open(self, trial: Trial) -> Any:
        folder = experiment_folder(trial)
        known = self._hashes.get(trial.trial_id) if trial.checkpoint is not None else None
        run = _optional.load("aim", "AimLoggerCallback").Run(
            known,
            repo=self._repo or (str(folder) if folder else None),
            experiment=self._experiment_name or (folder.name if folder else None),
            **self._options,
        )
        self._hashes[trial.trial_id] = run.hash
        run["trial_id"] = trial.trial_id
        run["trial_log_dir"] = trial.local_path
        return run

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Track the numbers of a result."""
        run = self._runs[trial.trial_id]
        if NODE_IP in result:
            run["trial_ip"] = result[NODE_IP]
        values = {name: value for name, value in result.items() if name not in NOT_TRACKED}
        context, epoch = values.pop("context", None), values.pop("epoch", None)
        for name, value in flatten(values).items():
            number = as_number(value)
            if number is None or not math.isfinite(number):
                continue
            if self._metrics is None or name in self._metrics:
                run.track(number, name=f"{PREFIX}{name}", step=step_of(result), epoch=epoch, context=context)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Close the run of a trial, if the trial has started."""
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.close()

    def get_state(self) -> dict[str, Any]:
        """Return the hashes of the runs, so that a restored experiment continues them."""
        return {"hashes": dict(self._hashes)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the hashes of the runs."""
        self._hashes = dict(state["hashes"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}}


_UNSUPPORTED = object()


def _parameter(value: Any) -> Any:
    """Return a parameter in a form that Aim stores; `_UNSUPPORTED` if there is none."""
    if isinstance(value, str | bool | list | None):
        return value
    number = as_number(value)
    if number is not None:
        return number
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "size", None) == 1 else _UNSUPPORTED
