"""Tells MLflow about a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.train import Checkpoint, UserCallback
from skate.train._reports.metrics import numbers
from skate.train._run.run_context import RunContext

__all__ = ["MLflowLoggerCallback"]


class MLflowLoggerCallback(UserCallback):
    """Keeps the settings and the metrics of a run in MLflow: of the lowest rank that reports.

    Args:
        tracking_uri: Where MLflow keeps its runs; as MLflow decides if not given.
        registry_uri: Where it keeps models.
        experiment_name: The experiment that the run belongs to, which is made if it is missing.
        tags: Tags of the run.
        tracking_token: What to authenticate with.
        save_artifact: Also upload the run's folder at the end, if it is on this machine.
        log_params_on_trial_end: Tell the settings at the end in place of the beginning.

    Raises:
        ImportError: MLflow is missing.
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
        """Hand on the numbers of a report."""
        if self._run is None:
            self._run = self._begin(run_context)
        said = next((each for each in metrics if each), {})
        for name, value in numbers(said).items():
            self._client.log_metric(self._run, name, value, step=self._step)
        self._step += 1

    def _run_ended(self, run_context: RunContext, error: BaseException | None) -> None:
        if self._run is None:
            self._run = self._begin(run_context)
        if self._params_at_end:
            self._tell_settings(run_context)
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
            self._tell_settings(run_context)
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

    def _tell_settings(self, run_context: RunContext) -> None:
        for name, value in (run_context.train_loop_config or {}).items():
            self._client.log_param(self._run, name, value)
