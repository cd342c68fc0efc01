"""The integration with MLflow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.air.integrations._rank import Disabled, current_context
from skate.train import Checkpoint, UserCallback
from skate.train._reports.metrics import numbers
from skate.train._run.run_context import RunContext

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]


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
    """Start an MLflow run in a training function, and return the module `mlflow`, whose functions log to it.

    Args:
        config: The parameters of the run.
        tracking_uri: Where MLflow stores its runs; MLflow's default if not given.
        registry_uri: Where MLflow stores models.
        experiment_id: The experiment of the run.
        experiment_name: The name of the experiment, if no id is given; the name of the training run by default.
        tracking_token: The token for authentication.
        artifact_location: Where a new experiment stores its artifacts.
        run_name: The name of the MLflow run; the name of the training run by default.
        create_experiment_if_not_exists: Whether to create a missing experiment.
        tags: The tags of the run.
        rank_zero_only: Whether only rank 0 starts a run; other ranks get an object that accepts all calls and does
            nothing.

    Raises:
        ImportError: MLflow is not installed.
        ValueError: The experiment does not exist.
    """
    mlflow = _optional.load("mlflow", "setup_mlflow")
    context = current_context()
    if rank_zero_only and context is not None and context.get_world_rank() > 0:
        return Disabled()
    if tracking_token is not None:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if context is not None:
        experiment_name = experiment_name or context.get_experiment_name()
        run_name = run_name or context.get_trial_name()
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_registry_uri(registry_uri)
    client = mlflow.MlflowClient(tracking_uri=tracking_uri, registry_uri=registry_uri)
    experiment = experiment_id or _experiment_named(
        client, experiment_name, artifact_location, create=create_experiment_if_not_exists
    )
    mlflow.start_run(experiment_id=experiment, run_name=run_name, tags=dict(tags or {}))
    mlflow.log_params(dict(config or {}))
    return mlflow


def _experiment_named(client: Any, name: str | None, location: str | None, *, create: bool) -> str:
    found = client.get_experiment_by_name(name) if name is not None else None
    if found is not None:
        return str(found.experiment_id)
    if name is None or not create:
        raise ValueError(
            f"MLflow has no experiment of the name {name!r}: give setup_mlflow() an experiment_id, an existing "
            "experiment_name, or create_experiment_if_not_exists=True"
        )
    return str(client.create_experiment(name, artifact_location=location))


class MLflowLoggerCallback(UserCallback):
    """Logs the parameters of a run, and the metrics of the lowest rank that reports, to MLflow.

    Args:
        tracking_uri: Where MLflow stores its runs; MLflow's default if not given.
        registry_uri: Where MLflow stores models.
        experiment_name: The experiment of the run, which is created if it is missing.
        tags: The tags of the run.
        tracking_token: The token for authentication.
        save_artifact: Whether to upload the run's folder at the end, if it is local.
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
        mlflow = _optional.load("mlflow", "MLflowLoggerCallback")
        if tracking_token is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
        self._client = mlflow.MlflowClient(tracking_uri=tracking_uri, registry_uri=registry_uri)
        self._experiment_name = experiment_name
        self._tags = dict(tags or {})
        self._save_artifact = save_artifact
        self._params_at_end = log_params_on_trial_end
        self._run: str | None = None
        self._step = 0

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Log the numeric metrics of a report."""
        if self._run is None:
            self._run = self._begin(run_context)
        first = next((each for each in metrics if each), {})
        for name, value in numbers(first).items():
            self._client.log_metric(self._run, name, value, step=self._step)
        self._step += 1

    def _run_ended(self, run_context: RunContext, error: BaseException | None) -> None:
        if self._run is None:
            self._run = self._begin(run_context)
        if self._params_at_end:
            self._log_params(run_context)
        folder = Path(str(run_context.run_config.storage_path), str(run_context.run_config.name))
        if self._save_artifact and folder.is_dir():
            self._client.log_artifacts(self._run, str(folder))
        self._client.set_terminated(self._run, "FINISHED" if error is None else "FAILED")
        self._run, self._step = None, 0

    def _begin(self, run_context: RunContext) -> str:
        name = run_context.run_config.name
        tags = {**self._tags, "trial_name": name}
        run = self._client.create_run(self._experiment(), tags=tags, run_name=name)
        self._run = str(run.info.run_id)
        if not self._params_at_end:
            self._log_params(run_context)
        return self._run

    def _experiment(self) -> str:
        if self._experiment_name is None:
            return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
        found = self._client.get_experiment_by_name(self._experiment_name)
        return str(
            found.experiment_id
            if found is not None
            else self._client.create_experiment(self._experiment_name)
        )

    def _log_params(self, run_context: RunContext) -> None:
        for name, value in (run_context.train_loop_config or {}).items():
            self._client.log_param(self._run, name, value)
