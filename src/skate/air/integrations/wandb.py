"""The integration with Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.air.integrations._rank import Disabled, current_context
from skate.train import Checkpoint, UserCallback
from skate.train._run.run_context import RunContext

__all__ = ["WandbLoggerCallback", "setup_wandb"]


def setup_wandb(
    config: dict[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Start a run of Weights & Biases in a training function, and return it.

    Args:
        config: The configuration of the run.
        api_key: The key for authentication.
        api_key_file: A file with that key.
        rank_zero_only: Whether only rank 0 starts a run; other ranks get an object that accepts all calls and does
            nothing.
        **kwargs: Arguments for `wandb.init`; `id`, `name` and `group` default to those of the training run.

    Raises:
        ImportError: wandb is not installed.
        ValueError: Both a key and a file are given.
    """
    wandb = _optional.load("wandb", "setup_wandb")
    context = current_context()
    if rank_zero_only and context is not None and context.get_world_rank() > 0:
        return Disabled()
    _authenticate(api_key, api_key_file)
    named: dict[str, Any] = {
        "project": os.environ.get("WANDB_PROJECT_NAME"),
        "group": os.environ.get("WANDB_GROUP_NAME"),
    }
    trial_id, trial_name = kwargs.pop("trial_id", None), kwargs.pop("trial_name", None)
    if context is not None:
        named["group"] = named["group"] or context.get_experiment_name()
        trial_id, trial_name = trial_id or context.get_trial_id(), trial_name or context.get_trial_name()
    named |= {"id": trial_id, "name": trial_name, "resume": "allow"}
    return wandb.init(config=dict(config or {}), **{**named, **kwargs})


def _authenticate(api_key: str | None, api_key_file: str | None) -> None:
    if api_key_file is not None:
        if api_key is not None:
            raise ValueError("api_key and api_key_file are both given: give one of them")
        api_key = Path(api_key_file).expanduser().read_text(encoding="utf-8").strip()
    if api_key is not None:
        os.environ["WANDB_API_KEY"] = api_key


class WandbLoggerCallback(UserCallback):
    """Logs the configuration of a run, and the metrics of the lowest rank that reports, to Weights & Biases.

    Args:
        project: The project of the run; `$WANDB_PROJECT_NAME` if not given.
        group: The group; `$WANDB_GROUP_NAME`, or the name of the run, if not given.
        api_key_file: A file with the key for authentication.
        api_key: That key.
        excludes: Metrics to omit.
        log_config: Whether to log the configuration with each report.
        upload_checkpoints: Whether to upload checkpoints.
        **kwargs: Arguments for `wandb.init`.

    Raises:
        ImportError: wandb is not installed.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: list[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        **kwargs: Any,
    ) -> None:
        self._wandb = _optional.load("wandb", "WandbLoggerCallback")
        _authenticate(api_key, api_key_file)
        self._project = project or os.environ.get("WANDB_PROJECT_NAME")
        self._group = group or os.environ.get("WANDB_GROUP_NAME")
        self._excludes = set(excludes or ())
        self._log_config = log_config
        self._upload_checkpoints = upload_checkpoints
        self._options = kwargs
        self._run: Any = None

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Log the metrics of a report and, if enabled, upload its checkpoint."""
        self._begin(run_context)
        first = next((each for each in metrics if each), {})
        logged = {name: value for name, value in first.items() if name not in self._excludes}
        if self._log_config:
            logged["config"] = dict(run_context.train_loop_config or {})
        self._run.log(logged)
        if checkpoint is not None and self._upload_checkpoints:
            artifact = self._wandb.Artifact(name=f"checkpoint_{run_context.run_config.name}", type="model")
            with checkpoint.as_directory() as folder:
                artifact.add_dir(folder)
                self._run.log_artifact(artifact)

    def _run_ended(self, run_context: RunContext, error: BaseException | None) -> None:
        self._begin(run_context)
        self._run.finish(exit_code=0 if error is None else 1)
        self._run = None

    def _begin(self, run_context: RunContext) -> None:
        if self._run is None:
            name = run_context.run_config.name
            options = {"name": name, "group": self._group or name, "project": self._project, **self._options}
            self._run = self._wandb.init(config=dict(run_context.train_loop_config or {}), **options)
