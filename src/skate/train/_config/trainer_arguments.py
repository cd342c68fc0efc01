"""Checks of the arguments of trainers, made when a trainer is created rather than when it trains."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from skate.air import _arguments as arguments
from skate.air.config import RunConfig, ScalingConfig, warn_of_unused
from skate.train._config.datasets import DataConfig
from skate.train._config.validation_config import ValidationConfig
from skate.train._storage.checkpoint import Checkpoint


def check_trainer(
    scaling_config: Any,
    run_config: Any,
    dataset_config: Any,
    resume_from_checkpoint: Any,
    validation_config: Any,
) -> None:
    """Raise ValueError, as Ray does, if a configuration object of a trainer has the wrong type."""
    for name, value, kind in (
        ("scaling_config", scaling_config, ScalingConfig),
        ("run_config", run_config, RunConfig),
        ("dataset_config", dataset_config, DataConfig),
        ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
        ("validation_config", validation_config, ValidationConfig),
    ):
        must = f"a skate.train.{kind.__name__}"
        arguments.instance(name, value, kind, must, optional=True, error=ValueError)
    if run_config is not None:
        for callback in run_config.callbacks:
            if not hasattr(callback, "after_report"):
                must = "a list of objects of classes derived from skate.train.UserCallback"
                arguments.refuse("callbacks", must, run_config.callbacks, ValueError)
        warn_of_unused(run_config)


def check_backend(name: str, value: Any, kind: type[Any]) -> Any:
    """Return the configuration of a backend, the default one for None.

    Args:
        name: The trainer's parameter.
        value: The given value.
        kind: The class of the configuration.

    Raises:
        TypeError: The value has another type.
    """
    if value is None:
        return kind()
    return arguments.instance(name, value, kind, f"an instance of {kind.__name__}", optional=True)


def check_datasets(datasets: Any, config: DataConfig) -> dict[str, Any]:
    """Return the datasets of a trainer by name.

    A subclass of `DataConfig` that overrides `configure` may accept any objects.

    Raises:
        ValueError: `datasets` is no dictionary, or a value is neither a dataset nor a function that returns one.
    """
    must = "a dictionary with strings as keys, and datasets or functions that return them as values"
    found = arguments.mapping("datasets", datasets, must, error=ValueError)
    for name, dataset in found.items():
        if not isinstance(name, str):
            arguments.refuse("datasets", must, datasets, ValueError)
        if not callable(dataset):
            _check_dataset(name, dataset, config)
    config.check(found)
    return found


def open_datasets(datasets: Mapping[str, Any], config: DataConfig) -> dict[str, Any]:
    """Return the datasets; functions are replaced by the datasets that they return.

    Raises:
        ValueError: A function returned something else.
    """
    found = {name: dataset() if callable(dataset) else dataset for name, dataset in datasets.items()}
    for name, dataset in found.items():
        _check_dataset(name, dataset, config)
    return found


def _check_dataset(name: str, dataset: Any, config: DataConfig) -> None:
    if type(config).configure is DataConfig.configure and not hasattr(dataset, "streaming_split"):
        raise ValueError(
            f"`datasets[{name!r}]` must be a skate.data.Dataset, or a function that returns one, got "
            f"{arguments.shown(dataset)}."
        )


def check_metadata(metadata: Any) -> dict[str, Any]:
    """Return the metadata of checkpoints, which must be JSON."""
    found = arguments.mapping("metadata", metadata)
    arguments.as_json("metadata", found)
    return found


def bind_function(function: Any, config: Any) -> Callable[[], Any]:
    """Return the training function as a function without parameters.

    Raises:
        TypeError: `function` is no function, or a coroutine function, or the config is no dictionary.
        ValueError: The function takes more than one argument.
    """
    name = "train_loop_per_worker"
    arguments.function(name, function, "a function that takes no argument, or one dictionary")
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"`{name}` must be a plain function, got a coroutine function, {_name_of(function)}: call "
            "asyncio.run(…) in a plain one."
        )
    given = arguments.mapping("train_loop_config", config)
    parameters = inspect.signature(function).parameters.values()
    by_position, by_keyword = arguments.arity(function)
    needed = [*by_position, *by_keyword]
    if len(needed) > 1 or by_keyword:
        raise ValueError(
            f"`{name}` must take no argument, or one dictionary, which is `train_loop_config`, and "
            f"{_name_of(function)} needs {', '.join(needed)}."
        )
    if all(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in parameters):
        return function  # type: ignore[no-any-return]  # callable() does not narrow Any
    return WithConfig(function, given)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


class WithConfig:
    """A training function bound to its config."""

    def __init__(self, function: Callable[..., Any], config: Mapping[str, Any]) -> None:
        self.function = function
        self._config = dict(config)

    def __call__(self) -> Any:
        return self.function(self._config)
