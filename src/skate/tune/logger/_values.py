"""Convert trials and their results for experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from skate.tune.experiment._metrics import flat
from skate.tune.result import TIMESTEPS_TOTAL, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.train import Checkpoint
    from skate.tune.experiment import Trial

BOOKKEEPING = ("done", "should_checkpoint")  # keys of results that are not metrics


def flatten(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the values of nested dicts by their paths."""
    return dict(flat(values))


def as_number(value: Any) -> int | float | None:
    """Return a number as an int or a float; None for a boolean or a value that is not a number.

    Arrays and tensors with a single element are numbers.
    """
    if _has_one_element(value):
        value = value.item()
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return float(value) if isinstance(value, Real) else None


def numbers(values: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the numbers of nested dicts by their paths."""
    converted = {name: as_number(value) for name, value in flatten(values).items()}
    return {name: number for name, number in converted.items() if number is not None}


def plain(value: Any) -> Any:
    """Return a configuration as JSON values. Other objects become strings."""
    if _has_one_element(value):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def matches(name: str, names: tuple[str, ...]) -> bool:
    """Return whether a path is one of the names or starts with one of them."""
    return any(name == each or name.startswith(f"{each}/") for each in names)


def step_of(result: Mapping[str, Any]) -> int:
    """Return the step of a result: its total number of timesteps if the trainable counts them, or its iteration."""
    return int(result.get(TIMESTEPS_TOTAL) or result[TRAINING_ITERATION])


def local_folder(checkpoint: Checkpoint | None) -> str | None:
    """Return the folder of a checkpoint on a local disk; None if it is stored elsewhere."""
    if checkpoint is None or not isinstance(checkpoint.filesystem, pafs.LocalFileSystem):
        return None
    return str(checkpoint.path)


def experiment_folder(trial: Trial) -> Path | None:
    """Return the folder of a trial's experiment, once it exists."""
    if trial.local_path is None or trial.relative_logdir is None:
        return None
    return Path(trial.local_path.removesuffix(trial.relative_logdir))


def _has_one_element(value: Any) -> bool:
    if not callable(getattr(value, "item", None)):
        return False
    return getattr(value, "ndim", None) == 0 or getattr(value, "size", None) == 1
