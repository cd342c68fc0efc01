"""The integration with Weights & Biases."""

from __future__ import annotations

import os
import re
import threading
import time
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from skate.air import _optional
from skate.air.integrations import _wandb_settings as settings
from skate.air.integrations._rank import Disabled, call_at_end, current_names
from skate.train import Checkpoint, UserCallback
from skate.train._run.run_context import RunContext
from skate.tune.logger import LoggerCallback
from skate.tune.logger._values import (
    BOOKKEEPING,
    as_number,
    experiment_folder,
    flatten,
    local_folder,
    matches,
    plain,
)
from skate.tune.result import CONFIG_PREFIX, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["WandbLoggerCallback", "setup_wandb"]

UPLOAD_TIMEOUT_S = 1800

_NOT_IN_ARTIFACT_NAMES = re.compile(r"[^\w.-]+")
_users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # that have called `setup_wandb`


def setup_wandb(
    config: dict[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Start a run of Weights & Biases in a trainable or a training function, and return it.

    The run ends with its method `finish`, or else when the function or the process ends.

    Args:
        config: The configuration of the run.
        api_key: The key for authentication.
        api_key_file: A file with that key.
        rank_zero_only: Whether only rank 0 of a distributed training starts a run; other ranks get an object that
            accepts all calls and does nothing.
        **kwargs: Arguments for `wandb.init`; `id` and `name` default to those of the trial or the training run, `group`
            to the name of the experiment. `trial_id` and `trial_name` are other names of `id` and `name`.

    Returns:
        The run, or the object that does nothing.

    Raises:
        ImportError: wandb is not installed.
        ValueError: Both a key and a file are given, or there is no key.
    """
    wandb = _optional.load("wandb", "setup_wandb")
    names = current_names()
    if rank_zero_only and names.rank > 0:
        return Disabled()
    settings.authenticate(wandb, settings.read_key(api_key, api_key_file), kwargs.get("mode"))
    options: dict[str, Any] = {
        "id": kwargs.pop("trial_id", None) or names.trial_id,
        "name": kwargs.pop("trial_name", None) or names.trial_name,
        "project": settings.choose_project(kwargs.pop("project", None)),
        "resume": "allow",
        "reinit": _reinit(),
    }
    options["group"] = os.environ.get(settings.GROUP) or names.experiment
    run = wandb.init(config=plain(config or {}), **{**options, **kwargs})
    settings.process_run(run)
    call_at_end(lambda failed: run.finish(exit_code=int(failed)))
    return run


def _reinit() -> str:
    """Return how a new run treats earlier ones: those of functions that still run in this process must stay open."""
    current = threading.current_thread()
    others = any(each.is_alive() for each in list(_users) if each is not current)
    _users.add(current)
    return "create_new" if others else "finish_previous"


class WandbLoggerCallback(LoggerCallback, UserCallback):
    """Logs each trial of an experiment, or a training run, as a run of Weights & Biases.

    All runs are open in the process of the driver, which needs wandb 0.19.10 or later. The configuration is logged as
    such, and numbers, images and other values of wandb as metrics; arrays with three dimensions are images, with four a
    batch of images, with five a batch of videos. A training run logs the metrics of the lowest rank that reports. A
    trial that is restarted or restored from a checkpoint continues its run; wandb ignores steps that it already has.

    Args:
        project: The project of the runs; `$WANDB_PROJECT_NAME` if not given.
        group: The group; `$WANDB_GROUP_NAME`, or the name of the experiment, if not given.
        api_key_file: A file with the key for authentication.
        api_key: That key. It is not stored with the experiment: set `$WANDB_API_KEY` before `Tuner.restore`.
        excludes: Metrics and parameters to omit.
        log_config: Whether to log the configuration with each result as well, which shows when a scheduler changes it.
        upload_checkpoints: Whether to upload checkpoints.
        save_checkpoints: A deprecated name of `upload_checkpoints`.
        upload_timeout: Seconds to wait for uploads at the end of the experiment.
        video_kwargs: Arguments for `wandb.Video`.
        image_kwargs: Arguments for `wandb.Image`.
        **kwargs: Arguments for `wandb.init`.

    Raises:
        ImportError: wandb is not installed.
        ValueError: Both a key and a file are given.
    """

    AUTO_CONFIG_KEYS: ClassVar[list[str]] = [
        "trial_id",
        "experiment_tag",
        "node_ip",
        "experiment_id",
        "hostname",
        "pid",
        "date",
    ]  # results that belong to the configuration

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: list[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: int = UPLOAD_TIMEOUT_S,
        video_kwargs: dict[str, Any] | None = None,
        image_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        _optional.load("wandb", "WandbLoggerCallback")
        if save_checkpoints:
            warnings.warn(
                "save_checkpoints is a deprecated name of upload_checkpoints",
                DeprecationWarning,
                stacklevel=2,
            )
        key = settings.read_key(api_key, api_key_file)
        if key is not None:
            os.environ[settings.API_KEY] = key
        self._project, self._group = project, group
        self._excludes = tuple(excludes or ())
        self._log_config = log_config
        self._upload_checkpoints = upload_checkpoints or save_checkpoints
        self._upload_timeout = upload_timeout
        self._video_options, self._image_options = dict(video_kwargs or {}), dict(image_kwargs or {})
        self._options = kwargs
        self._runs: dict[str, Any] = {}
        self._finishing: list[threading.Thread] = []

    # ------------------------------------------------------------ trials

    def setup(self, *args: Any, **info: Any) -> None:
        """Check that there are a key and a project.

        Raises:
            ValueError: One of them is missing.
        """
        settings.authenticate(self._wandb, None, self._options.get("mode"))
        self._project = settings.choose_project(self._project)
        if not self._project:
            raise ValueError(
                f"WandbLoggerCallback has no project: give it `project`, or set ${settings.PROJECT}"
            )

    def log_trial_start(self, trial: Trial) -> None:
        """Start the run of a trial, or continue it."""
        folder = experiment_folder(trial)
        options = {
            "id": trial.trial_id,
            "name": str(trial),
            "group": self._group or os.environ.get(settings.GROUP) or (folder.name if folder else None),
            "dir": trial.local_path,
            "resume": "allow" if trial.checkpoint is not None else None,
        }
        self._begin(trial.trial_id, trial.config, options)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Log the metrics of a result, and facts about the trial as its configuration."""
        run = self._runs[trial.trial_id]
        metrics, facts = self._split(result)
        run.config.update(facts, allow_val_change=True)
        run.log(metrics, step=result.get(TRAINING_ITERATION))

    def log_trial_save(self, trial: Trial) -> None:
        """Upload the latest checkpoint of a trial, if enabled."""
        run = self._runs.get(trial.trial_id)
        folder = local_folder(trial.checkpoint)
        if self._upload_checkpoints and run is not None and folder is not None:
            self._upload(run, str(trial), folder)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Finish the run of a trial, if the trial has started, in the background."""
        run = self._runs.pop(trial.trial_id, None)
        if run is None:
            return
        options = {"exit_code": 1 if failed else 0}
        thread = threading.Thread(target=run.finish, kwargs=options, name=f"wandb-{trial}", daemon=True)
        self._finishing = [each for each in self._finishing if each.is_alive()] + [thread]
        thread.start()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Wait until the runs have uploaded their data."""
        deadline = time.monotonic() + self._upload_timeout
        for thread in self._finishing:
            thread.join(max(deadline - time.monotonic(), 0))
        self._finishing = []

    # ------------------------------------------------------------ training runs

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Log the metrics of a report and, if enabled, upload its checkpoint."""
        name = self._begin_training(run_context)
        logged, _ = self._split(next((each for each in metrics if each), {}))
        if self._log_config:
            logged |= flatten({CONFIG_PREFIX: run_context.train_loop_config or {}})
        self._runs[name].log(logged)
        if checkpoint is not None and self._upload_checkpoints:
            with checkpoint.as_directory() as folder:
                self._upload(self._runs[name], name, folder)

    def _run_ended(self, run_context: RunContext, error: BaseException | None) -> None:
        name = self._begin_training(run_context)
        self._runs.pop(name).finish(exit_code=0 if error is None else 1)

    def _begin_training(self, run_context: RunContext) -> str:
        name = str(run_context.run_config.name)
        if name not in self._runs:
            settings.authenticate(self._wandb, None, self._options.get("mode"))
            self._project = settings.choose_project(self._project)
            group = self._group or os.environ.get(settings.GROUP) or name
            self._begin(name, run_context.train_loop_config or {}, {"name": name, "group": group})
        return name

    # ------------------------------------------------------------ runs of wandb

    @property
    def _wandb(self) -> Any:
        return _optional.load("wandb", "WandbLoggerCallback")

    def _begin(self, key: str, config: Mapping[str, Any], options: dict[str, Any]) -> None:
        if key in self._runs:
            self._runs[key].config.update(self._chosen_config(config), allow_val_change=True)
            return
        options |= {"project": self._project, "reinit": "create_new", "allow_val_change": True}
        if "settings" not in self._options:
            # The output of the driver belongs to no single run.
            options["settings"] = self._wandb.Settings(console="off")
        run = self._wandb.init(config=self._chosen_config(config), **{**options, **self._options})
        self._runs[key] = run
        settings.process_run(run)

    def _chosen_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        omitted = ("callbacks", *self._excludes)
        return {name: plain(value) for name, value in config.items() if not matches(str(name), omitted)}

    def _split(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the metrics of a result, and the facts that belong to the configuration."""
        omitted = (*BOOKKEEPING, *self._excludes, *(() if self._log_config else (CONFIG_PREFIX,)))
        metrics: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        for name, value in flatten(result).items():
            if matches(name, omitted):
                continue
            if matches(name, tuple(self.AUTO_CONFIG_KEYS)):
                facts[name] = plain(value)
                continue
            logged = self._as_logged(value)
            if logged is not None:
                metrics[name] = logged
        return metrics, facts

    def _as_logged(self, value: Any) -> Any:
        """Return a metric in the form that wandb logs; None for one that it cannot log."""
        if isinstance(value, bool):
            return value
        number = as_number(value)
        if number is not None:
            return number
        dimensions = getattr(value, "ndim", 0)
        if dimensions == 3:
            return self._wandb.Image(value, **self._image_options)
        if dimensions in (4, 5):
            kind, options = (
                (self._wandb.Image, self._image_options)
                if dimensions == 4
                else (self._wandb.Video, self._video_options)
            )
            items = [kind(each, **options) for each in value]
            return items[0] if len(items) == 1 else items
        return value if self._is_media(value) else None

    def _is_media(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return bool(value) and self._is_media(value[0])
        media = getattr(getattr(self._wandb, "data_types", None), "WBValue", ())
        return isinstance(value, media)

    def _upload(self, run: Any, name: str, folder: str) -> None:
        name = _NOT_IN_ARTIFACT_NAMES.sub("_", f"checkpoint_{name}")
        artifact = self._wandb.Artifact(name=name, type="model")
        artifact.add_dir(folder)
        run.log_artifact(artifact)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}, "_finishing": []}
