"""The functional entry points of Tune, with all settings as arguments."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs

from skate._base.suggestions import did_you_mean
from skate.train import Checkpoint
from skate.tune._validation import check_param_space
from skate.tune.analysis import ExperimentAnalysis
from skate.tune.callback import Callback
from skate.tune.error import TuneError
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.experiment import Experiment, Trial
from skate.tune.impl.config import (
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    StopCriterion,
    adapt_config,
    is_local,
)
from skate.tune.registry import get_trainable_cls
from skate.tune.schedulers import TrialScheduler, create_scheduler
from skate.tune.search import SearchAlgorithm, Searcher, create_searcher
from skate.tune.trainable.util import with_resources
from skate.tune.tune_config import ResumeConfig, TuneConfig
from skate.tune.tuner import Trainables, Tuner

__all__ = ["run", "run_experiments"]


def run(
    run_or_experiment: Trainables | Experiment | Sequence[Experiment | Trainables],
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: StopCriterion | None = None,
    time_budget_s: float | datetime.timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Mapping[str, Any] | PlacementGroupFactory | None = None,
    num_samples: int = 1,
    storage_path: str | None = None,
    storage_filesystem: Any = None,
    search_alg: Searcher | SearchAlgorithm | str | None = None,
    scheduler: TrialScheduler | str | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    log_to_file: Any = False,
    trial_name_creator: Callable[[Trial], str] | None = None,
    trial_dirname_creator: Callable[[Trial], str] | None = None,
    sync_config: Any = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | Any = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool | None = None,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Callback] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: Any = None,
    local_dir: str | None = None,
    _remote: bool | None = None,
) -> ExperimentAnalysis:
    """Run one experiment, or several together, and return their trials.

    `Tuner` does the same, with settings in classes.

    Args:
        run_or_experiment: The trainable (a function, a subclass of `Trainable` or a registered name), an `Experiment`,
            or a list of them. An `Experiment` has its own search space, resources, stopping criteria, storage,
            checkpoints and failures; all experiments share the other arguments, and the resources of the session.
        name: The name of the experiment and of its folder.
        metric: The metric to optimize.
        mode: "min" or "max".
        stop: When trials stop.
        time_budget_s: Seconds, or a `timedelta`, after which all trials stop.
        config: The search space.
        resources_per_trial: The resources of a trial, such as `{"cpu": 2}`.
        num_samples: How many times the search space is sampled.
        storage_path: The folder of all experiments.
        storage_filesystem: A filesystem for that path.
        search_alg: Suggests the configurations; an object, or the name of a library such as "optuna".
        scheduler: Decides which trials run, pause and stop; an object, or a name such as "asha".
        checkpoint_config: Which checkpoints are saved and kept.
        verbose: 0 for no output.
        progress_reporter: See `RunConfig`.
        log_to_file: See `RunConfig`.
        trial_name_creator: Returns the name of a trial.
        trial_dirname_creator: Returns the name of a trial's folder.
        sync_config: When results are uploaded to a storage that is not a local disk.
        export_formats: The formats in which a trainable class exports its model when a trial ends, with
            `Trainable.export_model`. `ExportFormat` has names for common formats.
        max_failures: How many times a failed trial is restarted.
        fail_fast: Whether the experiment ends at the first failed trial.
        restore: The path or URI of a checkpoint that every new trial starts from.
        resume: Whether to continue the experiment of the same name, if there is one: True, False, "AUTO", which is
            True, or "AUTO+ERRORED", which also continues failed trials. "RESTART_ERRORED" starts them again, and
            "ERRORED_ONLY" and "RESTART_ERRORED_ONLY" end the unfinished ones.
        resume_config: What happens to the trials of such an experiment, instead of the suffixes of `resume`.
        reuse_actors: What the next trial reuses: see `TuneConfig`.
        raise_on_failed_trial: Whether to raise if a trial has failed.
        callbacks: Objects that receive the events of the experiment.
        max_concurrent_trials: The maximum number of concurrent trials.
        keep_checkpoints_num: Older form of `CheckpointConfig(num_to_keep=…)`.
        checkpoint_score_attr: Older form of `CheckpointConfig(checkpoint_score_attribute=…)`; "min-loss" keeps the
            checkpoints with the lowest `loss`.
        checkpoint_freq: Older form of `CheckpointConfig(checkpoint_frequency=…)`.
        checkpoint_at_end: Older form of `CheckpointConfig(checkpoint_at_end=…)`.
        chdir_to_trial_dir: Replaced by the environment variable `RAY_CHDIR_TO_TRIAL_DIR`.
        local_dir: Older form of `storage_path`.
        _remote: Has no effect; accepted for programs written for Ray. This process always controls the experiment.

    Returns:
        The trials of the experiment.

    Raises:
        FileNotFoundError: There is no checkpoint at `restore`.
        TuneError: A trial has failed, and `raise_on_failed_trial` is true.
        ValueError: The settings contradict each other.
    """
    shared: dict[str, Any] = {
        "name": name,
        "metric": metric,
        "mode": mode,
        "search_alg": create_searcher(search_alg) if isinstance(search_alg, str) else search_alg,
        "scheduler": create_scheduler(scheduler) if isinstance(scheduler, str) else scheduler,
        "verbose": verbose,
        "progress_reporter": progress_reporter,
        "fail_fast": fail_fast,
        "resume": resume,
        "resume_config": resume_config,
        "reuse_actors": reuse_actors,
        "callbacks": callbacks,
        "max_concurrent_trials": max_concurrent_trials,
        "chdir_to_trial_dir": chdir_to_trial_dir,
    }
    own: dict[str, Any] = {
        "stop": stop,
        "time_budget_s": time_budget_s,
        "config": config,
        "resources_per_trial": resources_per_trial,
        "num_samples": num_samples,
        "storage_path": storage_path or local_dir,
        "storage_filesystem": storage_filesystem,
        "sync_config": sync_config,
        "checkpoint_config": checkpoint_config,
        "log_to_file": log_to_file,
        "trial_name_creator": trial_name_creator,
        "trial_dirname_creator": trial_dirname_creator,
        "export_formats": export_formats,
        "max_failures": max_failures,
        "restore": restore,
        "keep_checkpoints_num": keep_checkpoints_num,
        "checkpoint_score_attr": checkpoint_score_attr,
        "checkpoint_freq": checkpoint_freq,
        "checkpoint_at_end": checkpoint_at_end,
    }
    given = list(run_or_experiment) if isinstance(run_or_experiment, list | tuple) else [run_or_experiment]
    if not given:
        raise ValueError("`run_or_experiment` is an empty list: give at least one experiment.")
    tuners = []
    for each in given:
        if isinstance(each, Experiment):
            _check_spec(each.spec)
            arguments = {**shared, "name": each.name, **each.spec}
            tuners.append(_create_tuner(arguments.pop("run"), **arguments))
        else:
            tuners.append(_create_tuner(each, **shared, **own))
    return _run_together(tuners, raise_on_failed_trial)


def _run_together(tuners: Sequence[Tuner], raise_on_failed_trial: bool) -> ExperimentAnalysis:
    """Run experiments together, and return all their trials.

    Raises:
        TuneError: A trial has failed, and `raise_on_failed_trial` is true.
    """
    analysis = tuners[0]._fit(tuners[1:])._experiment_analysis
    failed = [trial for trial in analysis.trials if trial.status == Trial.ERROR]
    if failed and raise_on_failed_trial:
        raise TuneError("Trials did not complete", failed) from failed[0].error
    return analysis


def _create_tuner(
    trainable: Any,
    *,
    name: str | None = None,
    stop: StopCriterion | None = None,
    time_budget_s: float | datetime.timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Mapping[str, Any] | PlacementGroupFactory | None = None,
    num_samples: int = 1,
    storage_path: str | None = None,
    storage_filesystem: Any = None,
    sync_config: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | Any = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    callbacks: Sequence[Callback] | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    local_dir: str | None = None,
    **others: Any,
) -> Tuner:
    """Return the tuner for the arguments of `run`, which documents them."""
    registered = trainable if isinstance(trainable, str) else None
    if resources_per_trial is not None:
        trainable = with_resources(
            get_trainable_cls(trainable) if isinstance(trainable, str) else trainable, resources_per_trial
        )
        if registered is not None:
            trainable._name = registered
    tune_config = TuneConfig(
        num_samples=num_samples,
        time_budget_s=time_budget_s,
        **{each.name: others[each.name] for each in dataclasses.fields(TuneConfig) if each.name in others},
    )
    checkpoints = adapt_config(checkpoint_config) or CheckpointConfig(
        num_to_keep=keep_checkpoints_num,
        checkpoint_score_attribute=checkpoint_score_attr and checkpoint_score_attr.removeprefix("min-"),
        checkpoint_score_order="min" if (checkpoint_score_attr or "").startswith("min-") else "max",
        checkpoint_frequency=checkpoint_freq,
        checkpoint_at_end=checkpoint_at_end,
    )
    if checkpoints.checkpoint_at_end is None:
        checkpoints = dataclasses.replace(checkpoints, checkpoint_at_end=False)
    run_config = RunConfig(
        name=name,
        storage_path=storage_path or local_dir,
        storage_filesystem=storage_filesystem,
        failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast),
        checkpoint_config=checkpoints,
        sync_config=sync_config,
        stop=stop,
        callbacks=list(callbacks or []),
        **{key: others[key] for key in ("verbose", "progress_reporter", "log_to_file") if key in others},
    )
    check_param_space(config, "config")
    tuner = Tuner(trainable, param_space=config, tune_config=tune_config, run_config=run_config)
    tuner._export_formats = list(export_formats or ())
    if restore is not None:
        checkpoint = Checkpoint(restore)
        if checkpoint.filesystem.get_file_info(checkpoint.path).type != pafs.FileType.Directory:
            raise FileNotFoundError(f"`restore` is {restore!r}, but {checkpoint.path} is not a folder.")
        tuner._checkpoint = checkpoint.path if is_local(restore) else restore
    if resume:
        if name is None:
            raise ValueError("`resume` needs the `name` of the experiment to continue.")
        tuner._continue(
            resume_config or _resume_config_of(resume),
            keep_checkpoint_config=checkpoints == CheckpointConfig(checkpoint_at_end=False),
        )
    return tuner


def _check_spec(spec: Mapping[str, Any]) -> None:
    """Raise TuneError if an experiment has an argument that `run` does not take."""
    known = [
        name
        for name in inspect.signature(run).parameters
        if name not in ("run_or_experiment", "name", "_remote")
    ]
    for name in spec:
        if name != "run" and name not in known:
            raise TuneError(f"unknown field {name!r} of an experiment.{did_you_mean(name, known)}")


def _resume_config_of(resume: bool | str) -> ResumeConfig:
    """Return the configuration for True, "AUTO", or "AUTO+" with a suffix for failed trials."""
    kind = ResumeConfig.ResumeType
    if resume is True:
        return ResumeConfig()
    settings = {
        "AUTO": ResumeConfig(),
        "AUTO+ERRORED": ResumeConfig(errored=kind.RESUME),
        "AUTO+RESTART_ERRORED": ResumeConfig(errored=kind.RESTART),
        "AUTO+ERRORED_ONLY": ResumeConfig(unfinished=kind.SKIP, errored=kind.RESUME),
        "AUTO+RESTART_ERRORED_ONLY": ResumeConfig(unfinished=kind.SKIP, errored=kind.RESTART),
    }
    if resume not in settings:
        raise ValueError(
            f"`resume` is {resume!r}: it must be True, False or one of {list(settings)}."
            f"{did_you_mean(str(resume), settings)}"
        )
    return settings[resume]


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Experiment],
    scheduler: TrialScheduler | None = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool | None = None,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Callback] | None = None,
    _remote: bool | None = None,
) -> list[Trial]:
    """Run experiments, and return their trials.

    Args:
        experiments: An `Experiment`, several, or specifications by name.
        scheduler: See `run`.
        verbose: See `run`.
        progress_reporter: See `run`.
        resume: See `run`.
        resume_config: See `run`.
        reuse_actors: See `run`.
        raise_on_failed_trial: See `run`.
        concurrent: Whether the experiments run together; otherwise they run one after another.
        callbacks: See `run`.
        _remote: See `run`.
    """
    if isinstance(experiments, Experiment):
        found = [experiments]
    elif isinstance(experiments, Mapping):
        found = [
            spec if isinstance(spec, Experiment) else Experiment.from_json(name, spec)
            for name, spec in experiments.items()
        ]
    else:
        found = list(experiments)
    shared: dict[str, Any] = {
        "scheduler": scheduler,
        "verbose": verbose,
        "progress_reporter": progress_reporter,
        "resume": resume,
        "resume_config": resume_config,
        "reuse_actors": reuse_actors,
        "raise_on_failed_trial": raise_on_failed_trial,
        "callbacks": callbacks,
    }
    if concurrent:
        return run(found, **shared).trials
    for experiment in found:
        _check_spec(experiment.spec)
    return [trial for experiment in found for trial in run(experiment, **shared).trials]
