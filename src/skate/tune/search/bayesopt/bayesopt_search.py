"""Search with bayesian-optimization."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, ClassVar

import numpy as np

from skate._base.suggestions import did_you_mean
from skate.air import _optional
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import list_parameters, unsupported
from skate.tune.search.sample import Float, Uniform

__all__ = ["BayesOptSearch"]

logger = logging.getLogger(__name__)

_LIBRARY = "BayesOpt"
# The classes of acquisition functions and their argument, since version 2 of the library.
_ACQUISITIONS = {
    "ucb": ("UpperConfidenceBound", "kappa"),
    "ei": ("ExpectedImprovement", "xi"),
    "poi": ("ProbabilityOfImprovement", "xi"),
}


class BayesOptSearch(LibrarySearcher):
    """Suggests configurations with the Gaussian process of bayesian-optimization, for spaces of floats.

    Args:
        space: Bounds by parameter, `{"lr": (0.0, 1.0)}`; by default, that of the experiment.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        utility_kwargs: The acquisition function: its `kind`, "ucb", "ei" or "poi", and `kappa` or `xi`.
        random_state: The seed.
        random_search_steps: The number of random configurations before the model is used.
        verbose: How much the library prints.
        patience: How many times a configuration may be suggested before the search ends.
        skip_duplicate: Whether to suggest nothing instead of a configuration that was suggested before.
        analysis: Trials of another experiment to learn from.
        repeat_float_precision: The number of decimals up to which configurations are compared.

    Raises:
        ImportError: The library is not installed.
        ValueError: The search space has other values than floats, a point has an unknown key, or an argument is
            out of range.
    """

    LIBRARY: ClassVar = _LIBRARY

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        utility_kwargs: dict[str, Any] | None = None,
        random_state: int | None = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
    ) -> None:
        _load()
        if patience <= 0:
            raise ValueError(f"patience must be positive, got {patience!r}.")
        if isinstance(repeat_float_precision, bool) or not isinstance(repeat_float_precision, int):
            raise TypeError(f"repeat_float_precision must be an integer, got {repeat_float_precision!r}.")
        if repeat_float_precision < 0:
            raise ValueError(f"repeat_float_precision must not be negative, got {repeat_float_precision!r}.")
        self._utility_kwargs = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, **(utility_kwargs or {})}
        if self._utility_kwargs["kind"] not in _ACQUISITIONS:
            kind = self._utility_kwargs["kind"]
            raise ValueError(
                f"There is no acquisition function {kind!r}.{did_you_mean(str(kind), _ACQUISITIONS)} "
                f"Choose one of {list(_ACQUISITIONS)}."
            )
        self._rng = np.random.RandomState(random_state)
        self._random_steps = random_search_steps
        self._verbose = verbose
        self._patience = patience
        self._skip_duplicate = skip_duplicate
        self._analysis = analysis
        self._precision = repeat_float_precision
        self._seen: Counter[tuple[tuple[str, float], ...]] = Counter()
        self._asked = 0
        self._registered = 0
        self._utility: Any = None
        self.optimizer: Any = None
        super().__init__(space, metric, mode, points_to_evaluate)

    def _set_up(self) -> None:
        library = _load()
        options: dict[str, Any] = {}
        if hasattr(library, "UtilityFunction"):  # version 1
            self._utility = library.UtilityFunction(**self._utility_kwargs)
        else:
            name, argument = _ACQUISITIONS[self._utility_kwargs["kind"]]
            acquisition = getattr(_optional.load("bayes_opt.acquisition", "BayesOptSearch"), name)
            options["acquisition_function"] = acquisition(**{argument: self._utility_kwargs[argument]})
        self.optimizer = library.BayesianOptimization(
            f=None,
            pbounds=self._space,
            verbose=self._verbose,
            random_state=self._rng,
            allow_duplicate_points=True,
            **options,
        )

    def _prepare(self) -> None:
        super()._prepare()
        if self._analysis is not None:
            analysis, self._analysis = self._analysis, None
            self.register_analysis(analysis)

    def register_analysis(self, analysis: Any) -> None:
        """Learn from the trials of another experiment.

        Args:
            analysis: Its ExperimentAnalysis, or its trials.
        """
        self.add_evaluated_trials(analysis, str(self._metric))

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any] | str | None:
        point = self._draw() if self._asked < self._random_steps or not self._registered else self._suggest()
        return self._count(point)

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        self._seen[self._key(point)] += 1
        return point, point

    def _draw(self) -> dict[str, float]:
        return {name: float(self._rng.uniform(*bounds)) for name, bounds in self._space.items()}

    def _suggest(self) -> dict[str, float]:
        found = self.optimizer.suggest(*([] if self._utility is None else [self._utility]))
        return {name: float(value) for name, value in found.items()}

    def _count(self, point: dict[str, float]) -> tuple[dict[str, Any], Any] | str | None:
        """Return a point, unless it was suggested before."""
        key = self._key(point)
        self._seen[key] += 1
        if self._seen[key] > self._patience:
            logger.warning(
                "The search ends, because it suggested a configuration more than %d times: it has converged. "
                "Increase `patience` or extend the search space to continue.",
                self._patience,
            )
            return self.FINISHED
        if self._seen[key] > 1 and self._skip_duplicate:
            return None
        self._asked += 1
        return point, point

    def _key(self, point: dict[str, float]) -> tuple[tuple[str, float], ...]:
        return tuple(sorted((name, round(float(value), self._precision)) for name, value in point.items()))

    def _tell(self, handle: dict[str, float], value: Any, result: dict[str, Any]) -> None:
        self.optimizer.register(params=handle, target=-self._sign * value)  # the library maximizes
        self._registered += 1

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        self._tell(point, value, {})

    @staticmethod
    def convert_search_space(spec: dict[str, Any], join: bool = False) -> dict[str, Any]:
        """Return a search space of Tune as bounds by parameter.

        The library has no distributions. A warning names the parameters that are searched uniformly instead.

        Args:
            spec: The search space.
            join: Whether to add the constants of the space.

        Raises:
            ValueError: A value of the space is not a bounded float; the error has its path and type.
        """
        bounds: dict[str, Any] = {}
        for each in list_parameters(spec, _LIBRARY):
            if (
                not isinstance(each.domain, Float)
                or not np.isfinite([each.domain.lower, each.domain.upper]).all()
            ):
                raise unsupported(_LIBRARY, each, "It searches only floats between two bounds.")
            if not isinstance(each.sampler, Uniform):
                logger.warning("BayesOpt searches %r uniformly, not with %s.", each.name, each.sampler)
            bounds[each.name] = (each.domain.lower, each.domain.upper)
        return {**spec, **bounds} if join else bounds


def _load() -> Any:
    return _optional.load("bayes_opt", "BayesOptSearch", "bayesian-optimization")
