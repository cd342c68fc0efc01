"""Schedulers by name."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from skate._base.suggestions import did_you_mean

if TYPE_CHECKING:
    from skate.tune.schedulers.trial_scheduler import TrialScheduler

_SCHEDULERS = {
    "fifo": ("trial_scheduler", "FIFOScheduler"),
    "asha": ("async_hyperband", "ASHAScheduler"),
    "async_hyperband": ("async_hyperband", "AsyncHyperBandScheduler"),
    "asynchyperband": ("async_hyperband", "AsyncHyperBandScheduler"),
    "median_stopping_rule": ("median_stopping_rule", "MedianStoppingRule"),
    "medianstopping": ("median_stopping_rule", "MedianStoppingRule"),
    "hyperband": ("hyperband", "HyperBandScheduler"),
    "hb_bohb": ("hb_bohb", "HyperBandForBOHB"),
    "pbt": ("pbt", "PopulationBasedTraining"),
    "pbt_replay": ("pbt", "PopulationBasedTrainingReplay"),
    "pb2": ("pb2", "PB2"),
    "resource_changing": ("resource_changing_scheduler", "ResourceChangingScheduler"),
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """Return a scheduler by its name, so that a program can switch between them.

    Args:
        scheduler: The name, such as "async_hyperband" or "pbt"; case does not matter.
        kwargs: The arguments of the scheduler. Arguments that only other schedulers have are ignored.

    Raises:
        ValueError: There is no scheduler with this name.
        TypeError: No scheduler has such an argument.

    Example:
        >>> create_scheduler("async_hyperband", max_t=10, grace_period=2).debug_string().splitlines()[0]
        'Using AsyncHyperBand: num_stopped=0'
    """
    name = scheduler.lower()
    if name not in _SCHEDULERS:
        raise ValueError(
            f"There is no scheduler {scheduler!r}.{did_you_mean(name, _SCHEDULERS)} "
            f"The schedulers are {', '.join(_SCHEDULERS)}."
        )
    accepted = _arguments_of(name)
    if not kwargs.keys() <= accepted:
        known = sorted(set().union(*map(_arguments_of, _SCHEDULERS)))
        misspelled = next((argument for argument in kwargs if argument not in known), None)
        if misspelled is not None:
            raise TypeError(f"No scheduler has the argument {misspelled!r}.{did_you_mean(misspelled, known)}")
    created: TrialScheduler = _load(name)(**{key: kwargs[key] for key in kwargs.keys() & accepted})
    return created


def _load(name: str) -> Any:
    module, class_name = _SCHEDULERS[name]
    return getattr(importlib.import_module(f"skate.tune.schedulers.{module}"), class_name)


def _arguments_of(name: str) -> set[str]:
    return set(inspect.signature(_load(name)).parameters)
