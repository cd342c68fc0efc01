"""The integration with MLflow."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.air.integrations._rank import Disabled, call_at_end, current_names
from skate.train import Checkpoint, UserCallback
from skate.train._run.run_context import RunContext
from skate.tune.logger import LoggerCallback
from skate.tune.logger._values import flatten, numbers, step_of

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]

DEFAULT_EXPERIMENT = "0"  # which every MLflow store has
MAX_METRICS, MAX_PARAMS = 1000, 100  # in one request to a tracking server


def setup_mlflow(
    config: dict[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start an MLflow run in a trainable or a training function, and return the module `mlflow`, which logs to it.

    A second call in the same trial continues the run. The run ends with `mlflow.end_run()`, or else when the function
    or the process ends.

    Args:
        config: The parameters of the run.
        tracking_uri: Where MLflow stores its runs; MLflow's default if not given.
        registry_uri: Where MLflow stores models.
        experiment_id: The id of the experiment; `$MLFLOW_EXPERIMENT_ID` if not given.
        experiment_name: The name of the experiment, if no experiment has the id; `$MLFLOW_EXPERIMENT_NAME`, or the name
            of the experiment or the training run in which the function runs, if not given.
        tracking_token: The token for authentication.
        artifact_location: Where a new experiment stores its artifacts.
        run_name: The name of the MLflow run; the name of the trial or the training run by default.
        create_experiment_if_not_exists: Whether to create a missing experiment.
        tags: The tags of the run.
        rank_zero_only: Whether only rank 0 of a distributed training starts a run; other ranks get an object that
            accepts all calls and does nothing.

    Returns:
        The module `mlflow`, or the object that does nothing.

    Raises:
        ImportError: MLflow is not installed.
        ValueError: The experiment does not exist.
    """
    mlflow = _optional.load("mlflow", "setup_mlflow")
    names = current_names()
    if rank_zero_only and names.rank > 0:
        return Disabled()
    if tracking_token is not None:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_registry_uri(registry_uri)
    client = mlflow.MlflowClient(tracking_uri=tracking_uri, registry_uri=registry_uri)
    experiment = _choose_experiment(
        mlflow,
        client,
        experiment_id,
        experiment_name,
        default_name=names.experiment,
        location=artifact_location,
        create=create_experiment_if_not_exists,
    )
    if not _continues(mlflow, names.trial_id):
        name = run_name or names.trial_name or experiment_name
        run = mlflow.start_run(experiment_id=experiment, run_name=name, tags=dict(tags or {}))
        _remember(client, run.info.run_id, names.trial_id)
    mlflow.log_params(flatten(config or {}))
    return mlflow


# Runs that `setup_mlflow` has started in this process, with the thread and the trial that use them. MLflow itself ends
# only the run of the main thread, and trainable functions have threads of their own.
_started: dict[str, tuple[Any, threading.Thread, str | None]] = {}


def _continues(mlflow: Any, trial_id: str | None) -> bool:
    """End the runs of earlier trials; return whether the current run of this thread belongs to the trial."""
    _end_runs(abandoned_only=True)
    active = mlflow.active_run()
    if active is None:
        return False
    known = _started.get(active.info.run_id)
    if known is None or known[2] == trial_id:
        return True
    mlflow.end_run()
    _started.pop(active.info.run_id, None)
    return False


def _remember(client: Any, run_id: str, trial_id: str | None) -> None:
    atexit.unregister(_end_runs)
    atexit.register(_end_runs)
    _started[run_id] = (client, threading.current_thread(), trial_id)
    call_at_end(lambda failed: _end_run(run_id, failed=failed))


def _end_runs(*, abandoned_only: bool = False) -> None:
    """End the runs of this process or, if `abandoned_only` is set, those of functions that have returned."""
    for run_id, (_, thread, _) in list(_started.items()):
        if not abandoned_only or not thread.is_alive():
            with contextlib.suppress(
                Exception
            ):  # the store may no longer exist, and the error could not be handled
                _end_run(run_id)


def _end_run(run_id: str, *, failed: bool = False) -> None:
    client, _, _ = _started.pop(run_id, (None, None, None))
    if client is not None and client.get_run(run_id).info.status == "RUNNING":
        client.set_terminated(run_id, "FAILED" if failed else "FINISHED")


def _choose_experiment(
    mlflow: Any,
    client: Any,
    given_id: str | None = None,
    given_name: str | None = None,
    *,
    default_name: str | None = None,
    location: str | None = None,
    create: bool = True,
) -> str:
    """Return the id of the experiment with an id or else with a name, which may be created.

    Raises:
        ValueError: There is none.
    """
    wanted = given_id or os.environ.get("MLFLOW_EXPERIMENT_ID")
    if wanted is not None and _exists(mlflow, client, wanted):
        return wanted
    name = given_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or (None if wanted else default_name)
    found = client.get_experiment_by_name(name) if name is not None else None
    if found is not None:
        return str(found.experiment_id)
    if name is not None and create:
        return str(client.create_experiment(name, artifact_location=location))
    if name is None and wanted is None:
        raise ValueError("no MLflow experiment is given: give an experiment_id or an experiment_name")
    missing = f"the id {wanted!r}" if name is None else f"the name {name!r}"
    raise ValueError(
        f"MLflow has no experiment of {missing}: give an existing experiment_id or experiment_name, or a name and "
        "create_experiment_if_not_exists=True"
    )


def _exists(mlflow: Any, client: Any, experiment_id: str) -> bool:
    try:
        client.get_experiment(experiment_id)
    except mlflow.exceptions.MlflowException:
        return False
    return True


class MLflowLoggerCallback(LoggerCallback, UserCallback):
    """Logs each trial of an experiment, or a training run, as a run of MLflow.

    The configuration is logged as parameters and all numbers of the results as metrics, with the paths of nested values
    joined by slashes. A training run logs the metrics of the lowest rank that reports. A trial that is restarted or
    restored from a checkpoint continues its MLflow run. MLflow's parameters cannot change: if a scheduler changes the
    configuration of a trial, the metrics `config/…` show the new values.

    Args:
        tracking_uri: Where MLflow stores its runs; MLflow's default if not given.
        registry_uri: Where MLflow stores models.
        experiment_name: The MLflow experiment, which is created if it is missing; `$MLFLOW_EXPERIMENT_NAME`, or the
            default experiment, if not given. The experiment with the id `$MLFLOW_EXPERIMENT_ID` takes precedence.
        tags: The tags of the runs.
        tracking_token: The token for authentication. It is not stored with the experiment: set
            `$MLFLOW_TRACKING_TOKEN` before `Tuner.restore`.
        save_artifact: Whether to upload the folder of the trial or the run at the end, if it is local.
        log_params_on_trial_end: Whether to log the parameters at the end instead of the start.

    Raises:
        ImportError: MLflow is not installed.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        _optional.load("mlflow", "MLflowLoggerCallback")
        if tracking_token is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
        self._tracking_uri, self._registry_uri = tracking_uri, registry_uri
        self._experiment_name = experiment_name
        self._tags = dict(tags or {})
        self._save_artifact = save_artifact
        self._params_at_end = log_params_on_trial_end
        self._clock = time.time
        self._runs: dict[str, str] = {}  # the MLflow run of each trial or training run
        self._open: set[str] = set()
        self._reports = 0

    # ------------------------------------------------------------ trials

    def setup(self, *args: Any, **info: Any) -> None:
        """Find or create the MLflow experiment.

        Raises:
            ValueError: `$MLFLOW_EXPERIMENT_ID` does not exist, and no name is given.
        """
        _ = self._experiment

    def log_trial_start(self, trial: Trial) -> None:
        """Start the run of a trial, or continue it."""
        self._begin(trial.trial_id, str(trial), trial.config, resume=trial.checkpoint is not None)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Log the numbers of a result."""
        self._log_metrics(self._runs[trial.trial_id], result, step_of(result))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """End the run of a trial, if the trial has started."""
        if trial.trial_id in self._open:
            self._end(trial.trial_id, trial.config, trial.local_path, failed=failed)

    def get_state(self) -> dict[str, Any]:
        """Return the ids of the runs, so that a restored experiment continues them."""
        return {"runs": dict(self._runs)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the ids of the runs."""
        self._runs = dict(state["runs"])

    # ------------------------------------------------------------ training runs

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Log the numbers of a report."""
        name = self._begin_training(run_context)
        self._log_metrics(self._runs[name], next((each for each in metrics if each), {}), self._reports)
        self._reports += 1

    def _run_ended(self, run_context: RunContext, error: BaseException | None) -> None:
        name = self._begin_training(run_context)
        folder = str(Path(str(run_context.run_config.storage_path), name))
        self._end(name, run_context.train_loop_config or {}, folder, failed=error is not None)
        self._reports = 0

    def _begin_training(self, run_context: RunContext) -> str:
        name = str(run_context.run_config.name)
        self._begin(name, name, run_context.train_loop_config or {}, resume=False)
        return name

    # ------------------------------------------------------------ runs of MLflow

    def _begin(self, key: str, name: str, config: Mapping[str, Any], *, resume: bool) -> None:
        if key in self._open:
            return
        self._open.add(key)
        if resume and key in self._runs:
            self._client.update_run(self._runs[key], status="RUNNING")
            return
        tags = {**self._tags, "trial_name": name}
        run = self._client.create_run(self._experiment, tags=tags, run_name=name)
        self._runs[key] = str(run.info.run_id)
        if not self._params_at_end:
            self._log_params(self._runs[key], config)

    def _end(self, key: str, config: Mapping[str, Any], folder: str | None, *, failed: bool) -> None:
        self._open.discard(key)
        run = self._runs[key]
        if self._params_at_end:
            self._log_params(run, config)
        if self._save_artifact and folder is not None and Path(folder).is_dir():
            self._client.log_artifacts(run, folder)
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

    def _log_metrics(self, run: str, result: Mapping[str, Any], step: int) -> None:
        entities = self._mlflow.entities
        now = int(self._clock() * 1000)
        metrics = [entities.Metric(name, float(value), now, step) for name, value in numbers(result).items()]
        for batch in _batches(metrics, MAX_METRICS):
            self._client.log_batch(run, metrics=batch)

    def _log_params(self, run: str, config: Mapping[str, Any]) -> None:
        params = [self._mlflow.entities.Param(name, str(value)) for name, value in flatten(config).items()]
        for batch in _batches(params, MAX_PARAMS):
            self._client.log_batch(run, params=batch)

    @cached_property
    def _mlflow(self) -> Any:
        return _optional.load("mlflow", "MLflowLoggerCallback")

    @cached_property
    def _client(self) -> Any:
        return self._mlflow.MlflowClient(tracking_uri=self._tracking_uri, registry_uri=self._registry_uri)

    @cached_property
    def _experiment(self) -> str:
        name = self._experiment_name
        if name is None and not {"MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"} & set(os.environ):
            return DEFAULT_EXPERIMENT
        return _choose_experiment(self._mlflow, self._client, given_name=name)

    def __getstate__(self) -> dict[str, Any]:
        connected = ("_mlflow", "_client", "_experiment")
        return {name: value for name, value in self.__dict__.items() if name not in connected} | {
            "_open": set()
        }


def _batches(entries: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(entries), size):
        yield entries[first : first + size]
