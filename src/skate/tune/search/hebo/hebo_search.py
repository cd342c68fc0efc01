"""Search with HEBO."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from skate.air import _optional
from skate.tune.search._global_random import GlobalRandom
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search.sample import Categorical, Float, Integer, LogUniform, Uniform

__all__ = ["HEBOSearch"]

_LIBRARY = "HEBO"
_DESIGN_SPACE = "hebo.design_space.design_space"


class HEBOSearch(LibrarySearcher):
    """Suggests configurations with the heteroscedastic evolutionary Bayesian optimization of HEBO.

    HEBO suggests batches of `max_concurrent` configurations. Only that many trials run at the same time.
    With a seed, suggestions are reproducible if the version of pymoo is the one that HEBO requires, 0.6.0. Newer
    versions draw from their own generator, which cannot be seeded here.

    Args:
        space: A DesignSpace of HEBO; by default, that of the experiment.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        evaluated_rewards: The values of `points_to_evaluate`, which are then not run.
        random_state_seed: The seed; drawn from the global state of NumPy if None.
        max_concurrent: The number of trials that run at the same time.
        **kwargs: Arguments of HEBO's optimizer, such as `model_name`.

    Raises:
        ImportError: HEBO is not installed.
        TypeError: `space` has another type.
        ValueError: The search space cannot be expressed, a point has an unknown key, or `max_concurrent` is not a
            positive integer.
    """

    LIBRARY: ClassVar = _LIBRARY

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        evaluated_rewards: list[float] | None = None,
        random_state_seed: int | None = None,
        max_concurrent: int = 8,
        **kwargs: Any,
    ) -> None:
        _optional.require("hebo", "HEBOSearch", "HEBO")
        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent must be a positive integer, got {max_concurrent!r}.")
        if space is not None and not isinstance(space, dict):
            kind = _optional.load(_DESIGN_SPACE, "HEBOSearch", "HEBO").DesignSpace
            if not isinstance(space, kind):
                raise TypeError(f"space must be a DesignSpace of HEBO, got {type(space).__name__}.")
        self._seed = random_state_seed
        self._options = kwargs
        self._max_concurrent = max_concurrent
        self._random: GlobalRandom | None = None
        self._batch: list[dict[str, Any]] = []
        self._optimizer: Any = None
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the number of trials that may run at the same time, and return True."""
        self._max_concurrent = max_concurrent
        return True

    def _space_names(self) -> list[str]:
        return list(self._space.para_names)

    def _set_up(self) -> None:
        library = _optional.load("hebo.optimizers.hebo", "HEBOSearch", "HEBO")
        self._random = GlobalRandom(self._seed, torch=True)
        options = {"scramble_seed": self._seed, **self._options}
        with self._random.installed():
            self._optimizer = library.HEBO(space=self._space, **options)

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any] | None:
        if len(self._live) >= self._max_concurrent:
            return None
        if not self._batch:
            assert self._random is not None
            with self._random.installed():
                found = self._optimizer.suggest(n_suggestions=self._max_concurrent)
            self._batch = found.to_dict("records")
        point = self._batch.pop(0)
        return point, point

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        return point, point

    def _tell(self, handle: dict[str, Any], value: Any, result: dict[str, Any]) -> None:
        pandas = _optional.load("pandas", "HEBOSearch")
        frame = pandas.DataFrame([handle])[list(self._space.para_names)]
        self._optimizer.observe(frame, np.array([[self._sign * value]]))

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        self._tell(point, value, {})

    @staticmethod
    def convert_search_space(spec: dict[str, Any], prefix: str = "") -> Any:
        """Return a search space of Tune as a DesignSpace.

        Args:
            spec: The search space.
            prefix: The first part of the names of parameters.

        Raises:
            ValueError: HEBO cannot express a value of the space; the error has its path and type.
        """
        kind = _optional.load(_DESIGN_SPACE, "HEBOSearch", "HEBO").DesignSpace
        parameters = [_parameter(each) for each in list_parameters(spec, _LIBRARY)]
        for each in parameters:
            each["name"] = f"{prefix}/{each['name']}" if prefix else each["name"]
        return kind().parse(parameters)


def _parameter(parameter: Parameter) -> dict[str, Any]:
    """Return a parameter of HEBO. It has no quantization: suggestions are rounded."""
    domain, name = parameter.domain, parameter.name
    log = isinstance(parameter.sampler, LogUniform)
    if log or isinstance(parameter.sampler, Uniform):
        if isinstance(domain, Float):
            return {"name": name, "type": "pow" if log else "num", "lb": domain.lower, "ub": domain.upper}
        if isinstance(domain, Integer):
            return {
                "name": name,
                "type": "pow_int" if log else "int",
                "lb": domain.lower,
                "ub": parameter.last,
            }
        if isinstance(domain, Categorical):
            return {"name": name, "type": "cat", "categories": domain.categories}
    raise unsupported(_LIBRARY, parameter)
