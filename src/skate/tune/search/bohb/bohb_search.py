"""Search with BOHB of HpBandSter: kernel density estimators for each budget of HyperBand."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from skate.air import _optional
from skate.tune.experiment._metrics import lookup
from skate.tune.result import TRAINING_ITERATION
from skate.tune.search._global_random import GlobalRandom
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search._space import copy_tree, finite_number
from skate.tune.search.sample import Categorical, Float, Integer, LogUniform, Uniform
from skate.tune.search.searcher import Suggestion

__all__ = ["TuneBOHB"]

logger = logging.getLogger(__name__)

_LIBRARY = "BOHB"


class _Job:
    """A result as HpBandSter expects it. A result without a loss counts as bad."""

    def __init__(self, loss: float | None, budget: float, config: dict[str, Any]) -> None:
        self.result = None if loss is None else {"loss": loss}
        self.kwargs = {"budget": budget, "config": dict(config)}
        self.exception = None


class TuneBOHB(LibrarySearcher):
    """Suggests configurations with BOHB. Use it together with the scheduler HyperBandForBOHB.

    The scheduler adds the budget of a result as `hyperband_info`. With another scheduler, the number of training
    iterations of a completed trial is its budget.

    Args:
        space: A ConfigurationSpace of ConfigSpace; by default, that of the experiment.
        bohb_config: Arguments of HpBandSter's BOHB, such as `min_points_in_model`.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        seed: The seed; drawn from the global state of NumPy if None.
        max_concurrent: The maximum number of concurrent trials; 0 for no limit.

    Raises:
        ImportError: HpBandSter or ConfigSpace is not installed.
        ValueError: The search space cannot be expressed, or a point has an unknown key.
    """

    LIBRARY: ClassVar = _LIBRARY

    def __init__(
        self,
        space: Any = None,
        bohb_config: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        _load_configspace()
        _optional.require("hpbandster", "TuneBOHB")
        self._bohb_config = bohb_config or {}
        self._seed = seed
        self._random: GlobalRandom | None = None
        self._max_concurrent = max_concurrent
        self._budgets: dict[str, float] = {}  # the last budget that was reported, by trial
        self.running: set[str] = set()
        self.paused: set[str] = set()
        self.bohber: Any = None
        super().__init__(space, metric, mode, points_to_evaluate)

    @property
    def trial_to_params(self) -> dict[str, Any]:
        """The values of the parameters of each trial that has not completed."""
        return self._live

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the number of trials that may run at the same time, and return True."""
        self._max_concurrent = max_concurrent
        return True

    def _space_names(self) -> list[str]:
        return list(self._space)

    def _set_up(self) -> None:
        self._random = GlobalRandom(self._seed)
        if self._seed is not None:
            self._space.seed(self._seed)
        generators = _optional.load("hpbandster.optimizers.config_generators.bohb", "TuneBOHB", "hpbandster")
        self.bohber = generators.BOHB(self._space, **self._bohb_config)

    def suggest(self, trial_id: str) -> Suggestion:
        """Return a configuration for a trial, or None if the limit of running trials is reached."""
        if 0 < self._max_concurrent <= len(self.running - {trial_id}):
            return None
        found = super().suggest(trial_id)
        if isinstance(found, dict):
            self.running.add(trial_id)
        return found

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any]:
        assert self._random is not None
        with self._random.installed():
            config, _ = self.bohber.get_config(None)
        return dict(config), dict(config)

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        return point, copy_tree(point)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tell BOHB a result that has a budget of HyperBand."""
        if trial_id not in self._live:
            return
        if trial_id not in self.paused:
            self.running.add(trial_id)
        info = result.get("hyperband_info")
        if isinstance(info, dict) and "budget" in info:
            self._tell_budget(trial_id, result, info["budget"])

    def _tell_budget(self, trial_id: str, result: dict[str, Any], budget: float) -> None:
        self._budgets[trial_id] = budget
        assert self._random is not None
        with self._random.installed():
            self.bohber.new_result(self.to_wrapper(trial_id, result, budget))

    def to_wrapper(self, trial_id: str, result: dict[str, Any], budget: float | None = None) -> Any:
        """Return a result of a trial as HpBandSter expects it."""
        value = finite_number(lookup(result, str(self._metric)))
        budget = result["hyperband_info"]["budget"] if budget is None else budget
        return _Job(None if value is None else self._sign * value, float(budget), self._live[trial_id])

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Report the result of a trial to BOHB, unless one was reported, and forget the trial.

        Args:
            trial_id: The trial.
            result: The last result.
            error: Whether the trial failed.
        """
        if trial_id in self._live and trial_id not in self._budgets and result and not error:
            self._tell_budget(trial_id, result, result.get(TRAINING_ITERATION) or 1)
        self._budgets.pop(trial_id, None)
        self.running.discard(trial_id)
        self.paused.discard(trial_id)
        super().on_trial_complete(trial_id, result, error)

    def _tell(self, handle: Any, value: Any, result: dict[str, Any]) -> None:
        pass  # results are reported by budget

    def on_pause(self, trial_id: str) -> None:
        """Handle a pause of a trial, during which another may run."""
        self.paused.add(trial_id)
        self.running.discard(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Handle the end of a pause of a trial."""
        self.paused.discard(trial_id)
        self.running.add(trial_id)

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> Any:
        """Return a search space of Tune as a ConfigurationSpace.

        Args:
            spec: The search space.

        Raises:
            ValueError: BOHB cannot express a value of the space; the error has its path and type.
        """
        space = _load_configspace().ConfigurationSpace()
        add = getattr(space, "add", None) or space.add_hyperparameter  # before version 1
        for each in list_parameters(spec, _LIBRARY):
            add(_hyperparameter(each))
        return space


def _load_configspace() -> Any:
    return _optional.load("ConfigSpace", "TuneBOHB")


def _hyperparameter(parameter: Parameter) -> Any:
    """Return a hyperparameter of ConfigSpace. It has no quantization: suggestions are rounded."""
    kinds, domain, name = _load_configspace(), parameter.domain, parameter.name
    log = isinstance(parameter.sampler, LogUniform)
    if log or isinstance(parameter.sampler, Uniform):
        if isinstance(domain, Float):
            return kinds.UniformFloatHyperparameter(name, lower=domain.lower, upper=domain.upper, log=log)
        if isinstance(domain, Integer):
            return kinds.UniformIntegerHyperparameter(name, lower=domain.lower, upper=parameter.last, log=log)
        if isinstance(domain, Categorical):
            return kinds.CategoricalHyperparameter(name, choices=domain.categories)
    raise unsupported(_LIBRARY, parameter)
