"""The integration with Comet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.tune.logger import LoggerCallback
from skate.tune.logger._values import BOOKKEEPING, as_number, flatten, local_folder, matches, plain
from skate.tune.result import CONFIG_PREFIX, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["CometLoggerCallback"]

NOT_LOGGED = ("auto_output_logging", "log_git_metadata", "log_git_patch", "log_env_cpu", "log_env_gpu")
SYSTEM = ("node_ip", "hostname", "pid", "date")
OTHER = ("trial_id", "experiment_id", "experiment_tag")
CURVES = ("hist_stats/episode_reward", "hist_stats/episode_lengths")


class CometLoggerCallback(LoggerCallback):
    """Logs each trial of an experiment as an experiment of Comet.

    The configuration is logged as parameters and all numbers of the results as metrics, with the paths of nested values
    joined by slashes. A trial that is restarted or restored from a checkpoint continues its Comet experiment. Comet's
    own logging of the driver's output, its Git repository and its machine is off, unless `experiment_kwargs` enable it.

    Args:
        online: Whether to send the data to Comet; otherwise each trial writes an archive for `comet upload`.
        tags: Tags of the Comet experiments.
        save_checkpoints: Whether to upload checkpoints as artifacts.
        **experiment_kwargs: Arguments for `comet_ml.Experiment`, or `comet_ml.OfflineExperiment` if `online` is false,
            such as `api_key`, `workspace` and `project_name`. An `api_key` is not stored with the experiment: set
            `$COMET_API_KEY` before `Tuner.restore`.

    Raises:
        ImportError: comet_ml is not installed.
    """

    def __init__(
        self,
        online: bool = True,
        tags: list[str] | None = None,
        save_checkpoints: bool = False,
        **experiment_kwargs: Any,
    ) -> None:
        _load()
        self._online = online
        self._tags = list(tags or ())
        self._save_checkpoints = save_checkpoints
        self._options = {**dict.fromkeys(NOT_LOGGED, False), **experiment_kwargs}
        self._keys: dict[str, str] = {}  # of the Comet experiment of each trial
        self._experiments: dict[str, Any] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Start the Comet experiment of a trial, or continue it."""
        experiment = self._experiments.get(trial.trial_id)
        if experiment is None:
            experiment = self._experiments[trial.trial_id] = self._open(trial)
            self._keys[trial.trial_id] = experiment.get_key()
            experiment.set_name(str(trial))
            experiment.add_tags(self._tags)
            experiment.log_other("Created from", "Skate")
        experiment.log_parameters(_parameters(trial.config))

    def _open(self, trial: Trial) -> Any:
        comet = _load()
        key = self._keys.get(trial.trial_id) if trial.checkpoint is not None else None
        if key is None:
            kind = comet.Experiment if self._online else comet.OfflineExperiment
            experiment = kind(**self._options)
        else:
            kind = comet.ExistingExperiment if self._online else comet.ExistingOfflineExperiment
            experiment = kind(experiment_key=key, **self._options)
        # Comet ends the global experiment when the next one starts.
        comet.config.set_global_experiment(None)
        return experiment

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Log a result: numbers as metrics, and facts about the trial and its process as such."""
        experiment = self._experiments[trial.trial_id]
        step = result[TRAINING_ITERATION]
        metrics: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in flatten(result).items():
            if matches(name, (*BOOKKEEPING, CONFIG_PREFIX)):
                continue
            if matches(name, OTHER):
                others[name] = value
            elif matches(name, SYSTEM):
                experiment.log_system_info(name, value)
            elif matches(name, CURVES):
                experiment.log_curve(name, x=range(len(value)), y=value, step=step)
            elif (number := as_number(value)) is not None:
                metrics[name] = number
        experiment.log_others(others)
        experiment.log_metrics(metrics, step=step)

    def log_trial_save(self, trial: Trial) -> None:
        """Upload the latest checkpoint of a trial, if enabled."""
        experiment = self._experiments.get(trial.trial_id)
        folder = local_folder(trial.checkpoint)
        if not self._save_checkpoints or experiment is None or folder is None:
            return
        artifact = _load().Artifact(name=f"checkpoint_{trial}", artifact_type="model")
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                artifact.add(str(path), logical_path=path.relative_to(folder).as_posix())
        experiment.log_artifact(artifact)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """End the Comet experiment of a trial, if the trial has started."""
        experiment = self._experiments.pop(trial.trial_id, None)
        if experiment is not None:
            experiment.end()

    def get_state(self) -> dict[str, Any]:
        """Return the keys of the Comet experiments, so that a restored experiment continues them."""
        return {"keys": dict(self._keys)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the keys of the Comet experiments."""
        self._keys = dict(state["keys"])

    def __getstate__(self) -> dict[str, Any]:
        options = {name: value for name, value in self._options.items() if name != "api_key"}
        return {**self.__dict__, "_options": options, "_experiments": {}}


def _load() -> Any:
    # Importing comet_ml would otherwise have it watch other libraries.
    os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
    comet = _optional.load("comet_ml", "CometLoggerCallback")
    _optional.load("comet_ml.config", "CometLoggerCallback")
    return comet


def _parameters(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: plain(value) for name, value in flatten(config).items() if not matches(name, ("callbacks",))
    }
