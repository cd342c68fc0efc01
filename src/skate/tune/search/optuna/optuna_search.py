"""Search with Optuna."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar

from skate.air import _optional
from skate.tune.experiment._metrics import lookup
from skate.tune.result import TRAINING_ITERATION
from skate.tune.search._distributions import multiples
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search._space import finite_number, flatten, format_path
from skate.tune.search.sample import Categorical, Float, Integer, LogUniform, Uniform
from skate.tune.search.searcher import Names

__all__ = ["OptunaSearch"]

logger = logging.getLogger(__name__)

_LIBRARY = "Optuna"
_DIRECTIONS = {"min": "minimize", "max": "maximize"}


class OptunaSearch(LibrarySearcher):
    """Suggests configurations with a sampler of Optuna.

    Several objectives are optimized at the same time if metric and mode are lists.

    Args:
        space: Distributions of Optuna by parameter; or a function that is called with a trial of Optuna, calls its
            `suggest_` methods, and may return a dict of constants. That of the experiment if None.
        metric: The metric to optimize, or several; the value that a function returns if only the mode is given.
        mode: "min" or "max", or one for each metric.
        points_to_evaluate: Configurations to suggest first. Parameters that they lack are sampled.
        sampler: A sampler of Optuna; a TPESampler if None.
        study_name: The name of the study in the storage.
        storage: A storage of Optuna; in memory if None.
        seed: The seed of the default sampler.
        evaluated_rewards: The values of `points_to_evaluate`, which are then not run.

    Raises:
        ImportError: Optuna is not installed.
        TypeError: The sampler or the storage is not one of Optuna.
        ValueError: The search space cannot be expressed, or a point has an unknown key.
    """

    LIBRARY: ClassVar = _LIBRARY
    PARTIAL_POINTS: ClassVar = True

    def __init__(
        self,
        space: dict[str, Any] | Callable[[Any], dict[str, Any] | None] | None = None,
        metric: Names = None,
        mode: Names = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        optuna = _load()
        if sampler is not None and not isinstance(sampler, optuna.samplers.BaseSampler):
            raise TypeError(f"sampler must be an optuna.samplers.BaseSampler, got {type(sampler).__name__}.")
        if storage is not None and not isinstance(storage, optuna.storages.BaseStorage):
            raise TypeError(f"storage must be an optuna.storages.BaseStorage, got {type(storage).__name__}.")
        if sampler is not None and seed is not None:
            logger.warning(
                "The seed is ignored, because the sampler has its own: pass the seed to the sampler."
            )
        if callable(space) and evaluated_rewards is not None:
            raise TypeError(
                "evaluated_rewards need a space of distributions, because Optuna must know those of each point."
            )
        self._sampler = sampler
        self._study_name = study_name or "optuna"
        self._storage = storage
        self._seed = seed
        self._study: Any = None
        super().__init__(_flatten_space(space), metric, mode, points_to_evaluate, evaluated_rewards)

    @property
    def _ot_trials(self) -> dict[str, Any]:
        """The running trials; FLAML looks up here whether a trial belongs to this searcher."""
        return self._live

    def _set_up(self) -> None:
        optuna = _load()
        modes = [self._mode] if isinstance(self._mode, str) else list(self._mode or ())
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=self._sampler or optuna.samplers.TPESampler(seed=self._seed),
            pruner=optuna.pruners.NopPruner(),
            study_name=self._study_name,
            load_if_exists=True,
            directions=[_DIRECTIONS[mode] for mode in modes],
        )

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any]:
        if not callable(self._space):
            trial = self._study.ask(fixed_distributions=self._space)
            return trial.params, trial
        trial = self._study.ask()
        try:
            constants = self._space(trial)
        except BaseException:
            self._study.tell(trial, state=_load().trial.TrialState.FAIL)
            raise
        if constants is not None and not (
            isinstance(constants, dict) and all(isinstance(name, str) for name in constants)
        ):
            raise TypeError(
                f"The function `space` must return None or a dict of constants by name, got {constants!r}."
            )
        return {**trial.params, **(constants or {})}, trial

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        self._study.enqueue_trial(point)
        return self._ask("")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Record an intermediate value, unless there are several objectives or the value is not finite."""
        if not isinstance(self._metric, str) or trial_id not in self._live:
            return
        value, step = finite_number(lookup(result, self._metric)), result.get(TRAINING_ITERATION)
        if value is not None and step is not None:
            self._live[trial_id].report(value, int(step))

    def _tell(self, handle: Any, value: Any, result: dict[str, Any]) -> None:
        self._study.tell(handle, value)

    def _tell_failure(self, handle: Any, *, pruned: bool) -> None:
        state = _load().trial.TrialState
        self._study.tell(handle, state=state.PRUNED if pruned else state.FAIL)

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        self._add_trial(point, _load().trial.TrialState.COMPLETE, value, intermediate_values)

    def _add_failed_point(self, point: dict[str, Any], *, pruned: bool) -> None:
        state = _load().trial.TrialState
        self._add_trial(point, state.PRUNED if pruned else state.FAIL, None, None)

    def _add_trial(
        self, point: dict[str, Any], state: Any, value: Any, intermediate: list[float] | None
    ) -> None:
        if callable(self._space):
            raise TypeError("Points can be added only to a space of distributions, not to a function.")
        values = None if value is None else list(value) if isinstance(value, list | tuple) else [value]
        self._study.add_trial(
            _load().trial.create_trial(
                state=state,
                values=values,
                params=point,
                distributions={name: self._space[name] for name in point},
                intermediate_values=dict(enumerate(intermediate)) if intermediate else None,
            )
        )

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> dict[str, Any]:
        """Return a search space of Tune as distributions of Optuna by parameter.

        Args:
            spec: The search space.

        Raises:
            ValueError: Optuna cannot express a value of the space; the error has its path and type.
        """
        return {each.name: _distribution(each) for each in list_parameters(spec, _LIBRARY)}


def _load() -> Any:
    _optional.require_extra("tune", "OptunaSearch", "optuna")
    return _optional.load("optuna", "OptunaSearch")


def _flatten_space(space: Any) -> Any:
    """Return nested distributions by names such as `optimizer/lr`."""
    optuna = _load()
    if isinstance(space, list):
        raise TypeError(
            "A list of parameters is not a search space: pass a dict of distributions by parameter."
        )
    if not isinstance(space, dict):
        return space
    flat = {format_path(("config", *path)): value for path, value in flatten(space).items()}
    native = all(isinstance(value, optuna.distributions.BaseDistribution) for value in flat.values())
    return flat if native else space


def _distribution(parameter: Parameter) -> Any:
    """Return the distribution of a parameter.

    Optuna has no quantized log-uniform distributions: the suggestions of a plain one are rounded.
    """
    kinds = _load().distributions
    domain, log = parameter.domain, isinstance(parameter.sampler, LogUniform)
    known = log or isinstance(parameter.sampler, Uniform)
    if isinstance(domain, Float) and known:
        return kinds.FloatDistribution(domain.lower, domain.upper, log=log, step=None if log else parameter.q)
    if isinstance(domain, Integer) and known:
        if log or parameter.q is None:
            return kinds.IntDistribution(domain.lower, parameter.last, log=log)
        q = int(parameter.q)
        first, last = multiples(domain.lower, domain.upper, q)
        return kinds.IntDistribution(int(first) * q, int(last) * q, step=q)
    if isinstance(domain, Categorical) and known:
        return kinds.CategoricalDistribution(domain.categories)
    raise unsupported(_LIBRARY, parameter)
