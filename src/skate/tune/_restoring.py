"""Restore the trials of an earlier program."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import cloudpickle

from skate.tune._experiment.recorder import read_trials
from skate.tune._loop.settings import Settings
from skate.tune.callback import Callback
from skate.tune.experiment import Trial
from skate.tune.search._placeholders import ObjectTable
from skate.tune.tune_config import ResumeConfig

log = logging.getLogger("skate.tune")


class AbsentCallback(Callback):
    """Takes the place of a callback that could not be stored.

    Args:
        name: The name of its class.
        reason: Why it could not be stored.
    """

    def __init__(self, name: str, reason: str) -> None:
        self._name = name
        self._reason = reason

    def setup(self, *arguments: Any, **info: Any) -> None:
        """Warn that the callback is absent."""
        log.warning(
            "The callback %s does not run in the restored experiment, because it could not be stored: %s",
            self._name,
            self._reason,
        )


def storable_callbacks(callbacks: Sequence[Any]) -> list[Any]:
    """Return the callbacks for a restored experiment. Those that cannot be pickled are replaced, with a warning."""
    found = list(callbacks)
    for index, callback in enumerate(found):
        try:
            cloudpickle.dumps(callback)
        except Exception as error:  # pickling runs code of the user, which may raise anything
            name, reason = type(callback).__name__, f"{type(error).__name__}: {error}"
            log.warning(
                "The callback %s cannot be pickled, so Tuner.restore() will run without it: %s", name, reason
            )
            found[index] = AbsentCallback(name, reason)
    return found


def read_all_trials(settings: Settings, names: Sequence[str]) -> list[Trial]:
    """Return the stored trials of all experiments. In a shared folder, trials are distinguished by their trainables.

    Args:
        settings: The experiments.
        names: The names of their trainables.
    """
    folders = {each.folder.path: each.folder for each in settings.experiments}
    trials: list[Trial] = []
    for path, folder in folders.items():
        there = [index for index, each in enumerate(settings.experiments) if each.folder.path == path]
        by_name = {names[index]: index for index in reversed(there)}
        for trial in read_trials(folder, folder.read_journal()) if folder.exists() else ():
            trial.experiment = by_name.get(trial.trainable_name, there[0])
            use_objects(trial, settings.experiments[trial.experiment].objects)
            trials.append(trial)
    return trials


def prepare_trial(trial: Trial, resume: ResumeConfig) -> None:
    """Set the status of a restored trial: it continues, starts again, or is left as it ended."""
    kind = ResumeConfig.ResumeType
    action = kind(
        resume.errored
        if trial.status == Trial.ERROR
        else resume.finished
        if trial.status == Trial.TERMINATED
        else resume.unfinished
    )
    if action == kind.SKIP:
        if not trial.is_finished():
            trial.status = Trial.TERMINATED
        return
    trial.status = Trial.PENDING
    trial.error = None
    if action == kind.RESTART:
        trial.checkpoint = None
        trial.checkpoint_metrics = {}
        trial.last_result = {}


def use_objects(trial: Trial, objects: ObjectTable) -> None:
    """Give a restored trial the objects of the search space in place of their placeholders."""
    if not objects:
        return
    before = trial.config
    trial.objects, trial.config = objects, objects.resolve(before)
    for metrics in (trial.last_result, trial.checkpoint_metrics, *(each.metrics for each in trial.kept)):
        if metrics.get("config") is before:
            metrics["config"] = trial.config
