"""Check the arguments of a tuner."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.tune.impl.config import CheckpointConfig
from skate.tune.trainable.util import is_trainable_class
from skate.util import inspect_serializability


def check_serializable(trainable: Any, name: str) -> None:
    """Raise if a trainable cannot be sent to the workers.

    Raises:
        TypeError: The error names the parts that cannot be serialized.
    """
    report = io.StringIO()
    serializable, _ = inspect_serializability(trainable, name=name, print_file=report)
    if not serializable:
        raise TypeError(
            f"the trainable {name!r} was found to be non-serializable, so it cannot be sent to workers:\n"
            f"{report.getvalue()}"
        )


def check_param_space(space: Any, argument: str = "param_space") -> None:
    """Check that a search space is a dictionary.

    Raises:
        ValueError: It is not.
    """
    if space is not None and not isinstance(space, Mapping):
        raise ValueError(f"`{argument}` must be a dictionary, not {type(space).__name__}: {space!r}.")


def check_checkpoint_config(trainable: Any, config: CheckpointConfig) -> None:
    """Raise if the configuration asks Tune to save checkpoints of a function, which saves them itself.

    Raises:
        ValueError: The error names the setting.
    """
    asked = [name for name in ("checkpoint_frequency", "checkpoint_at_end") if getattr(config, name)]
    if asked and not is_trainable_class(trainable):
        raise ValueError(
            f"`{asked[0]}` is for trainable classes: a function saves a checkpoint with "
            "tune.report(metrics, checkpoint=...)."
        )


def check_same_trainable(given: str, stored: str | None) -> None:
    """Raise if an experiment is restored with another trainable.

    Args:
        given: The name of the trainable that `restore` received.
        stored: The name of the trainable of the first run; None if it is not known.

    Raises:
        ValueError: The names differ.
    """
    if stored is not None and given != stored:
        raise ValueError(
            f"`trainable` is {given!r}, but the experiment was run with {stored!r}: restore it with the same trainable."
        )


def check_same_space(given: Mapping[str, Any], stored: Sequence[str]) -> None:
    """Raise if an experiment is restored with other parameters; their values are not compared.

    Args:
        given: The search space that `restore` received.
        stored: The parameters of the first run.

    Raises:
        ValueError: A parameter was added or removed.
    """
    new, old = set(parameters_of(given)), set(stored)
    if new == old:
        return
    added, removed = sorted(new - old), sorted(old - new)
    hint = did_you_mean(added[0], removed) if added else ""
    raise ValueError(
        f"`param_space` must have the parameters of the first run. Added: {added}; removed: {removed}.{hint}"
    )


def parameters_of(space: Mapping[str, Any]) -> list[str]:
    """Return the paths of the values of a search space, such as `"optimizer/lr"`."""
    return list(_paths(space))


def _paths(space: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in space.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}"
