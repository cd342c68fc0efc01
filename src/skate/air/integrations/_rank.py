"""The names of the trial or the training run in this process, and the worker that reports to a tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from skate.train import TrainContext, get_context
from skate.train.error import SessionMisuseError
from skate.tune._workers.session import current_session


@dataclass(frozen=True)
class Names:
    """What a tracker calls the run of a function.

    Attributes:
        trial_id: The id of the trial, or the name of the training run; None outside of both.
        trial_name: The name of the trial or the training run.
        experiment: The name of the experiment or the training run.
        rank: The rank of the worker; 0 in a trial.
    """

    trial_id: str | None = None
    trial_name: str | None = None
    experiment: str | None = None
    rank: int = 0


def current_context() -> TrainContext | None:
    """Return the context of the training function in this process; None outside of one."""
    try:
        return get_context()
    except SessionMisuseError:
        return None


def current_names() -> Names:
    """Return the names of the training run or the trial that runs here."""
    context = current_context()
    if context is not None:
        return Names(
            context.get_trial_id(),
            context.get_trial_name(),
            context.get_experiment_name(),
            context.get_world_rank(),
        )
    session = current_session()
    if session is None:
        return Names()
    trial = session.assignment
    return Names(trial.trial_id, trial.trial_name, session.settings.experiment_name)


def call_at_end(action: Callable[[bool], None]) -> None:
    """Call `action` when the trainable function that runs here has ended, with whether it has failed."""
    session = current_session() if current_context() is None else None
    if session is not None:
        session.at_end(action)


class Disabled:
    """Accepts all calls and does nothing: the tracker of a worker that does not report to it."""

    def __getattr__(self, name: str) -> Any:
        return Disabled()

    def __call__(self, *_: object, **__: object) -> Any:
        return Disabled()

    def __enter__(self) -> Disabled:
        return self

    def __exit__(self, *_: object) -> None:
        return
