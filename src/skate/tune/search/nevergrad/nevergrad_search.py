"""Search with Nevergrad."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from skate._base.suggestions import did_you_mean
from skate.air import _optional
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search.sample import Categorical, Float, Integer, LogUniform, Normal, Uniform

__all__ = ["NevergradSearch"]

_LIBRARY = "Nevergrad"


class NevergradSearch(LibrarySearcher):
    """Suggests configurations with an optimizer of Nevergrad.

    Args:
        optimizer: An optimizer, or its class, configured class or name; OnePlusOne, which
            needs no budget, if None.
        optimizer_kwargs: Arguments of the class, such as `budget`.
        space: A parametrization of Nevergrad, or the names of the parameters of an optimizer whose candidates are
            arrays. That of the experiment if None.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        seed: The seed of the parametrization.

    Raises:
        ImportError: Nevergrad is not installed.
        TypeError: `optimizer` has another type.
        ValueError: The search space cannot be expressed, a point has an unknown key, or an argument does not match
            an optimizer that is already created.
    """

    LIBRARY: ClassVar = _LIBRARY

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        nevergrad = _load()
        if isinstance(optimizer, str):
            registry = nevergrad.optimizers.registry
            if optimizer not in registry:
                raise ValueError(
                    f"Nevergrad has no optimizer {optimizer!r}.{did_you_mean(optimizer, registry)}"
                )
            optimizer = registry[optimizer]
        created = isinstance(optimizer, nevergrad.optimizers.base.Optimizer)
        if created and optimizer_kwargs:
            raise ValueError("optimizer_kwargs are for an optimizer class, but an optimizer was passed.")
        if created and space is not None and not isinstance(space, list):
            raise ValueError(
                "With an optimizer, space must be None or the list of the names of its parameters."
            )
        if optimizer is not None and not created and not callable(optimizer):
            raise TypeError(f"optimizer must be an optimizer of Nevergrad or its class, got {optimizer!r}.")
        self._optimizer: Any = optimizer if created else None
        self._factory: Any = None if created else optimizer or nevergrad.optimizers.OnePlusOne
        self._kwargs = optimizer_kwargs or {}
        self._array_names: list[str] | None = space if created else None
        self._seed = seed
        super().__init__(optimizer.parametrization if created else space, metric, mode, points_to_evaluate)

    def _space_names(self) -> list[str] | None:
        if self._array_names is not None:
            return self._array_names
        kinds = _load().p
        if isinstance(self._space, kinds.Instrumentation):
            return list(self._space[1]._content)
        return list(self._space._content) if isinstance(self._space, kinds.Dict) else None

    def _set_up(self) -> None:
        if self._seed is not None:
            self._space.random_state = np.random.RandomState(self._seed)
        if self._optimizer is None:
            self._optimizer = self._factory(self._space, **self._kwargs)

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any]:
        candidate = self._optimizer.ask()
        if candidate.kwargs:
            return dict(candidate.kwargs), candidate
        if self._array_names is not None:
            array = candidate.args[0] if candidate.args else candidate.value
            return dict(zip(self._array_names, map(float, array), strict=True)), candidate
        return dict(candidate.value), candidate

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        args, kwargs = self._to_value(point)
        self._optimizer.suggest(*args, **kwargs)
        return self._ask("")

    def _to_value(self, point: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._array_names is not None:
            return (np.array([point[name] for name in self._array_names]),), {}
        return ((), point) if isinstance(self._space, _load().p.Instrumentation) else ((point,), {})

    def _tell(self, handle: Any, value: Any, result: dict[str, Any]) -> None:
        self._optimizer.tell(handle, self._sign * value)

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        args, kwargs = self._to_value(point)
        instrumented = isinstance(self._space, _load().p.Instrumentation)
        candidate = self._optimizer.parametrization.spawn_child(
            new_value=(args, kwargs) if instrumented else args[0]
        )
        try:
            self._optimizer.tell(candidate, self._sign * value)
        except _load().errors.TellNotAskedNotSupportedError as error:
            raise NotImplementedError(
                f"NevergradSearch with {self._optimizer.name} cannot use points that were evaluated elsewhere."
            ) from error

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> Any:
        """Return a search space of Tune as a parametrization of Nevergrad.

        Args:
            spec: The search space.

        Raises:
            ValueError: Nevergrad cannot express a value of the space; the error has its path and type.
        """
        return _load().p.Dict(**{each.name: _parameter(each) for each in list_parameters(spec, _LIBRARY)})


def _load() -> Any:
    return _optional.load("nevergrad", "NevergradSearch")


def _parameter(parameter: Parameter) -> Any:
    """Return a parameter of Nevergrad. It has no quantization: suggestions are rounded."""
    kinds, domain, sampler = _load().p, parameter.domain, parameter.sampler
    log = isinstance(sampler, LogUniform)
    if isinstance(domain, Categorical):
        return kinds.Choice(domain.categories)
    if isinstance(domain, Float) and isinstance(sampler, Normal):
        scalar = kinds.Scalar(init=sampler.mean).set_mutation(sigma=sampler.sd)
        lower, upper = (None if math.isinf(bound) else bound for bound in (domain.lower, domain.upper))
        return scalar if lower is upper is None else scalar.set_bounds(lower, upper)
    if not isinstance(domain, Float | Integer) or not (log or isinstance(sampler, Uniform)):
        raise unsupported(_LIBRARY, parameter)
    upper = parameter.last if isinstance(domain, Integer) else domain.upper
    if domain.lower == upper:
        return kinds.Choice([upper])  # Nevergrad has no intervals of one number
    scalar = (kinds.Log if log else kinds.Scalar)(lower=domain.lower, upper=upper)
    return scalar.set_integer_casting() if isinstance(domain, Integer) else scalar
