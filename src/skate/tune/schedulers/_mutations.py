"""Mutations of hyperparameters, for population based training."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from skate.tune.search._space import Path, copy_tree, flatten, format_path
from skate.tune.search.sample import Domain, Float, Function, Integer, Quantized

Distribution: TypeAlias = "list[Any] | tuple[Any, ...] | Domain | Callable[[], Any]"
Config: TypeAlias = dict[str, Any]

_ABSENT = object()


def flatten_mutations(mutations: Mapping[str, Any]) -> dict[Path, Distribution]:
    """Return the distributions of nested hyperparameters by their paths.

    Raises:
        TypeError: A value is not a distribution.
        ValueError: A distribution cannot be perturbed.
    """
    flat: dict[Path, Distribution] = flatten(mutations)
    for path, distribution in flat.items():
        name = format_path(path)
        if isinstance(distribution, Function):
            raise ValueError(
                f"hyperparam_mutations[{name!r}] is sample_from(), which cannot be perturbed: "
                "use uniform(), loguniform(), choice() or a function without arguments."
            )
        if path[-1] == "grid_search":
            raise ValueError(f"hyperparam_mutations[{name!r}] is a grid: pass its list of values instead.")
        if not isinstance(distribution, list | tuple | Domain) and not callable(distribution):
            raise TypeError(
                f"hyperparam_mutations[{name!r}] must be a list, a tuple, a dictionary, a search space such as "
                f"uniform(0, 1), or a function without arguments, not {distribution!r}."
            )
        if isinstance(distribution, list | tuple) and not distribution:
            raise ValueError(f"hyperparam_mutations[{name!r}] has no values to choose from.")
    return flat


def fill_missing(
    config: Config, mutations: Mapping[Path, Distribution], rng: random.Random
) -> dict[str, Any]:
    """Sample the hyperparameters that a configuration does not have.

    Args:
        config: The configuration, which is changed.
        mutations: The distributions by path.
        rng: The source of random numbers.

    Returns:
        The sampled values by the names of their paths.
    """
    sampled = {}
    for path, distribution in mutations.items():
        section = _section(config, path)
        if path[-1] not in section:
            section[path[-1]] = sampled[format_path(path)] = _sample(distribution, rng)
    return sampled


def explore(
    config: Config,
    mutations: Mapping[Path, Distribution],
    resample_probability: float,
    perturbation_factors: Sequence[float],
    custom_explore_fn: Callable[[Config], Config] | None,
    rng: random.Random,
) -> tuple[Config, dict[str, str]]:
    """Return a configuration with mutated hyperparameters.

    Args:
        config: The configuration to start from.
        mutations: The distributions of the hyperparameters to mutate.
        resample_probability: The probability that a value is resampled, from 0 to 1.
        perturbation_factors: The factors to choose from for numbers.
        custom_explore_fn: A function that takes the mutated configuration and returns the one to use.
        rng: The source of random numbers.

    Returns:
        The configuration, and a description of the change of each hyperparameter, for logs.

    Raises:
        TypeError: `custom_explore_fn` does not return a configuration.
    """
    new_config: Config = copy_tree(config)
    operations = {}
    for path, distribution in mutations.items():
        section = _section(new_config, path)
        value = section.get(path[-1])
        if rng.random() < resample_probability or not _is_perturbable(value, distribution):
            new_value, operation = _sample(distribution, rng), "resample"
            if _is_integer(value) and _is_number(new_value):
                new_value = int(new_value)
        elif isinstance(distribution, list | tuple):
            new_value, operation = _shift(value, distribution, rng)
        else:
            factor = rng.choice(perturbation_factors)
            new_value, operation = _scale(value, factor, distribution), f"* {factor}"
        section[path[-1]] = new_value
        operations[format_path(path)] = operation
    if custom_explore_fn is not None:
        new_config = custom_explore_fn(new_config)
        if not isinstance(new_config, dict):
            raise TypeError(
                f"custom_explore_fn must return the configuration, a dict. It returned {new_config!r}."
            )
    return new_config, operations


def mutated_values(config: Config, mutations: Mapping[Path, Any]) -> dict[Path, Any]:
    """Return the values of the hyperparameters that mutate, by path."""
    values = {}
    for path in mutations:
        value: Any = config
        for part in path:
            value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            values[path] = value
    return values


def set_values(config: Config, values: Mapping[Path, Any]) -> None:
    """Set hyperparameters of a configuration by path."""
    for path, value in values.items():
        _section(config, path)[path[-1]] = value


def _section(config: Config, path: Path) -> Config:
    """Return the dictionary that has the last part of a path as a key. Missing dictionaries are created.

    Raises:
        ValueError: The configuration has a value that is not a dictionary there.
    """
    for depth, part in enumerate(path[:-1], 1):
        config = config.setdefault(part, {})
        if not isinstance(config, dict):
            raise ValueError(
                f"The hyperparameter {format_path(path)!r} cannot be set: {format_path(path[:depth])!r} is {config!r} "
                "in the configuration of a trial, not a dictionary."
            )
    return config


def _sample(distribution: Distribution, rng: random.Random) -> Any:
    if isinstance(distribution, list | tuple):
        return rng.choice(distribution)
    if isinstance(distribution, Domain):
        return distribution.sample(random_state=rng.getrandbits(32))
    return distribution()


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_perturbable(value: Any, distribution: Distribution) -> bool:
    """Return whether a value can be shifted in its list, or scaled."""
    return value in distribution if isinstance(distribution, list | tuple) else _is_number(value)


def _shift(value: Any, values: Sequence[Any], rng: random.Random) -> tuple[Any, str]:
    """Return a neighbor of a value in a list."""
    step = rng.choice((-1, 1))
    index = values.index(value)
    new_index = min(max(index + step, 0), len(values) - 1)
    direction = "shift left" if step < 0 else "shift right"
    return values[new_index], direction if new_index != index else f"{direction} (noop)"


def _scale(value: Any, factor: float, distribution: Distribution) -> Any:
    """Return a value times a factor, within the bounds of its distribution if it has any."""
    scaled = value * factor
    if isinstance(distribution, Float | Integer):
        quantum = distribution.sampler.q if isinstance(distribution.sampler, Quantized) else None
        if quantum is not None:
            scaled = round(scaled / quantum) * quantum
        upper = distribution.upper
        if isinstance(distribution, Integer) and quantum is None:
            upper -= 1
        scaled = min(max(scaled, distribution.lower), upper)
    if not _is_integer(value) or not math.isfinite(scaled):
        return scaled
    return round(scaled)
