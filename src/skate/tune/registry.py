"""Trainables and environments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.tune.error import TuneError
from skate.tune.trainable.trainable import Trainable

__all__ = [
    "get_trainable_cls",
    "is_function_trainable",
    "register_env",
    "register_trainable",
    "validate_trainable",
]

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Callable[..., Any] | type, warn: bool = True) -> None:
    """Register a function or a class under a name, by which `Tuner` and `tune.run` find it.

    Args:
        name: The name.
        trainable: A function of the configuration, or a subclass of `Trainable`.
        warn: Has no effect; accepted for programs written for Ray.

    Raises:
        TypeError: The trainable is neither.
    """
    check_trainable(trainable)
    _trainables[name] = trainable


def check_trainable(trainable: Any) -> None:
    """Check that an object is a function or a subclass of `Trainable`.

    Raises:
        TypeError: It is neither.
    """
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise TypeError(
                f"the class {trainable.__name__} must be a subclass of skate.tune.Trainable to be tuned."
            )
    elif not callable(trainable):
        raise TypeError(
            "a trainable must be a function of the configuration, a subclass of skate.tune.Trainable, or a registered "
            f"name, not {trainable!r}."
        )


def validate_trainable(trainable_name: str) -> None:
    """Check that a trainable is registered under a name.

    Raises:
        TuneError: The name is not registered.
    """
    get_trainable_cls(trainable_name)


def is_function_trainable(trainable: str | Callable[..., Any] | type) -> bool:
    """Return whether a trainable is a function. It may be given by its registered name."""
    found = get_trainable_cls(trainable) if isinstance(trainable, str) else trainable
    return callable(found) and not inspect.isclass(found)


def get_trainable_cls(trainable_name: str) -> Any:
    """Return a registered function or class.

    Raises:
        TuneError: The name is not registered.
    """
    if trainable_name not in _trainables:
        raise TuneError(
            f"Unknown trainable: {trainable_name!r}. Register it with skate.tune.register_trainable()."
            f"{did_you_mean(trainable_name, _trainables)}"
        )
    return _trainables[trainable_name]


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Register a function that creates an environment for reinforcement learning.

    Raises:
        TypeError: It is not callable.
    """
    if not callable(env_creator):
        raise TypeError(
            f"`env_creator` must be a function of the environment's configuration, not {env_creator!r}."
        )
    _environments[name] = env_creator
