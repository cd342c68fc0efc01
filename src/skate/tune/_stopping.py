"""Create the stopper of an experiment from its stopping criteria."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from skate.tune.error import TuneError
from skate.tune.stopper import CombinedStopper, FunctionStopper, NoopStopper, Stopper, TimeoutStopper


def create_stopper(stop: Any, time_budget_s: float | datetime.timedelta | None) -> Stopper:
    """Return a stopper for all criteria except those in dictionaries, which are part of the trials.

    Args:
        stop: `RunConfig.stop`.
        time_budget_s: The time budget of the whole experiment.

    Raises:
        TypeError: `stop` is not a dictionary, a stopper, a function or a list of them.
        TuneError: A function cannot be called with the id of a trial and a result.
    """
    stoppers: list[Stopper] = []
    for each in stop if isinstance(stop, list | tuple) else [stop]:
        if isinstance(each, Stopper):
            stoppers.append(each)
        elif callable(each):
            _check_function(each)
            stoppers.append(FunctionStopper(each))
        elif each is not None and not isinstance(each, Mapping):
            raise TypeError(f"`stop` must be a dictionary, a Stopper or a function, not {each!r}.")
    if time_budget_s is not None:
        stoppers.append(TimeoutStopper(time_budget_s))
    if not stoppers:
        return NoopStopper()
    return stoppers[0] if len(stoppers) == 1 else CombinedStopper(*stoppers)


def _check_function(function: Callable[..., Any]) -> None:
    """Raise TuneError if a function cannot be called with the id of a trial and a result."""
    try:
        inspect.signature(function).bind("trial", {})
    except TypeError as error:
        raise TuneError(
            f"`stop` is {function!r}, but it must be a function of a trial's id and result: {error}."
        ) from None
    except ValueError:
        return  # a built-in function without a signature
