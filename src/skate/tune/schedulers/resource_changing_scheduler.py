"""Give the resources of finished trials to those that are still running."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from skate.tune.experiment import Trial
from skate.tune.result import TRAINING_ITERATION
from skate.tune.schedulers._controller import ReusesActors, total_resources
from skate.tune.schedulers._objective import SIGNS, check_mode
from skate.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

if TYPE_CHECKING:
    from skate.tune.execution.placement_groups import PlacementGroupFactory
    from skate.tune.schedulers._controller import TuneController

__all__ = ["DistributeResources", "DistributeResourcesToTopJob", "ResourceChangingScheduler"]

Bundle: TypeAlias = Mapping[str, float]
Allocation: TypeAlias = """Callable[
    [TuneController, Trial, dict[str, Any], ResourceChangingScheduler], PlacementGroupFactory | None
]"""

DISTRIBUTED = ("CPU", "GPU")
_ROUNDING = 1e-9  # for fractions of resources


class DistributeResources:
    """Share all CPUs and GPUs evenly among the trials that have not ended.

    An instance is a value for `ResourceChangingScheduler(resources_allocation_function=)`. A trial has the resources
    that it started with and some units more. It takes free units up to an even share, and gives units back when
    others, which wait, need them.

    Args:
        add_bundles: Whether each unit is a separate bundle. Otherwise, it is added to the only bundle of the trial.
        increase_by: The CPUs and GPUs of a unit. The default is the last bundle of the trial with `add_bundles`, else
            one GPU if the trial has GPUs, else one CPU.
        increase_by_times: The maximum number of units of a trial, if positive and `increase_by` is given.
        reserve_resources: CPUs and GPUs that stay free.

    Raises:
        ValueError: A unit has no CPUs and GPUs, or other resources.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: dict[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: dict[str, float] | None = None,
    ) -> None:
        if increase_by:
            _check_unit(increase_by)
        self.add_bundles = add_bundles
        self.increase_by = increase_by or {}
        self.increase_by_times = increase_by_times
        self.reserve_resources = reserve_resources or {}

    def __call__(
        self,
        tune_controller: TuneController,
        trial: Trial,
        result: dict[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> PlacementGroupFactory | None:
        """Return the resources that a trial should have, or None to keep those that it has.

        Args:
            tune_controller: The controller of the experiment.
            trial: The trial that has reported.
            result: Its result.
            scheduler: The scheduler.

        Raises:
            ValueError: The trials have no resources, or several bundles without `add_bundles`.
        """
        base = scheduler.base_trial_resources
        if base is None:
            raise ValueError(
                f"{type(self).__name__} needs to know what trials start with: use with_resources()."
            )
        if not self.add_bundles and len(base.bundles) > 1:
            raise ValueError(
                f"Trials have {len(base.bundles)} bundles, of which {type(self).__name__} cannot choose one to "
                "enlarge: pass add_bundles=True."
            )
        if result.get(TRAINING_ITERATION, 1) < 1:
            return None
        unit = self._unit(base.bundles)
        live = tune_controller.get_live_trials()
        free = dict(total_resources(tune_controller))
        for resource in DISTRIBUTED:
            free[resource] -= self.reserve_resources.get(resource, 0)
        to_share = {
            resource: free[resource] - len(live) * _amount(base.bundles, resource) for resource in free
        }
        for other in live:
            for resource in DISTRIBUTED:
                free[resource] -= _amount(_bundles_of(other), resource)
        units = self._count_units(trial, base.bundles, unit)
        wanted = self._choose_units(
            trial,
            result,
            live,
            units,
            _count_available(unit, free),
            _count_available(unit, to_share),
            scheduler,
        )
        bundles = self._add_units(base.bundles, unit, wanted)
        head: list[dict[str, float]] = [{}] if base.head_bundle_is_empty else []
        return type(base)([*head, *bundles], base.strategy, *base._args, **base._kwargs)

    def _choose_units(
        self,
        trial: Trial,
        result: dict[str, Any],
        live: Collection[Trial],
        units: int,
        free: int,
        to_share: int,
        scheduler: ResourceChangingScheduler,
    ) -> int:
        """Return how many units a trial should have.

        Args:
            trial: The trial.
            result: Its result.
            live: The trials that have not ended.
            units: The number of units that it has.
            free: The number of free units; negative if waiting trials need some.
            to_share: The number of units in addition to those that trials start with.
            scheduler: The scheduler.
        """
        share = math.ceil(max(to_share, 0) / max(len(live), 1))
        return self._take(units, free, share)

    def _take(self, units: int, free: int, limit: float = math.inf) -> int:
        """Return how many units a trial has after it has taken free units or given some back."""
        if free <= 0:
            return max(units + free, 0)
        return int(min(units + free, limit, self._most_units()))

    def _most_units(self) -> float:
        return self.increase_by_times if self.increase_by and self.increase_by_times > 0 else math.inf

    def _unit(self, base: list[dict[str, float]]) -> Bundle:
        if self.increase_by:
            return self.increase_by
        if self.add_bundles:
            unit = {resource: base[-1].get(resource, 0) for resource in DISTRIBUTED}
            _check_unit(unit)
            return unit
        return {"GPU": 1} if base[0].get("GPU") else {"CPU": 1}

    def _count_units(self, trial: Trial, base: list[dict[str, float]], unit: Bundle) -> int:
        bundles = _bundles_of(trial)
        if self.add_bundles:
            return len(bundles) - len(base)
        return _count_available(unit, {name: _amount(bundles, name) - _amount(base, name) for name in unit})

    def _add_units(self, base: list[dict[str, float]], unit: Bundle, count: int) -> list[dict[str, float]]:
        if self.add_bundles:
            extra = {resource: amount for resource, amount in unit.items() if amount}
            return [dict(bundle) for bundle in base] + [dict(extra) for _ in range(count)]
        bundle = dict(base[0])
        for resource, amount in unit.items():
            if amount * count:
                bundle[resource] = bundle.get(resource, 0) + amount * count
        return [bundle]


class DistributeResourcesToTopJob(DistributeResources):
    """Give all free CPUs and GPUs to the best trial.

    An instance is a value for `ResourceChangingScheduler(resources_allocation_function=)`. Trials that were the best
    before keep what they have, unless others, which wait, need it.

    Args:
        add_bundles: Whether each unit is a separate bundle. Otherwise, it is added to the only bundle of the trial.
        increase_by: The CPUs and GPUs of a unit. The default is the last bundle of the trial with `add_bundles`, else
            one GPU if the trial has GPUs, else one CPU.
        increase_by_times: The maximum number of units of a trial, if positive and `increase_by` is given. When the
            best trial has that many, the next best one gets more.
        reserve_resources: CPUs and GPUs that stay free.
        metric: The metric to compare. The default is that of the scheduler.
        mode: "min" or "max". The default is that of the scheduler.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: dict[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: dict[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        check_mode(mode)
        self.metric = metric
        self.mode = mode

    def _choose_units(
        self,
        trial: Trial,
        result: dict[str, Any],
        live: Collection[Trial],
        units: int,
        free: int,
        to_share: int,
        scheduler: ResourceChangingScheduler,
    ) -> int:
        metric = self.metric or scheduler.metric
        mode = self.mode or scheduler.mode
        if metric is None or mode is None:
            raise ValueError(
                f"{type(self).__name__} has metric={metric!r} and mode={mode!r}, but needs both: pass them to it, to "
                "the base scheduler, or to TuneConfig(metric=, mode=)."
            )
        base = scheduler.base_trial_resources
        assert base is not None, "checked by the caller"
        unit = self._unit(base.bundles)

        def score(other: Trial) -> float:
            value = (result if other is trial else other.last_result).get(metric)
            number = -math.inf if value is None else SIGNS[mode] * float(value)
            return -math.inf if math.isnan(number) else number

        growing = [t for t in live if self._count_units(t, base.bundles, unit) < self._most_units()]
        best = max(growing or live, key=score, default=trial)
        return self._take(units, min(free, 0) if trial is not best else free)


_SHARE_EVENLY = DistributeResources()


class ResourceChangingScheduler(TrialScheduler):
    """Change the resources of trials while they train.

    A base scheduler decides about trials. Whenever it lets one continue, a function may give it other resources;
    then the trial pauses and starts again from its checkpoint. The training function reads what it has with
    `get_trial_resources()`. Trials must save checkpoints, and `TuneConfig(reuse_actors=True)` is not possible.

    Args:
        base_scheduler: Decides about trials; `FIFOScheduler` by default.
        resources_allocation_function: A function that takes the controller, the trial, its result and this scheduler.
            It returns the resources that the trial should have, or None to keep those that it has.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = _SHARE_EVENLY,
    ) -> None:
        super().__init__()
        if resources_allocation_function is None:
            warnings.warn(
                "ResourceChangingScheduler changes nothing without resources_allocation_function: "
                "pass DistributeResources(), or use the base scheduler alone.",
                stacklevel=2,
            )
        self._base_scheduler = base_scheduler or FIFOScheduler()
        self._allocate = resources_allocation_function
        self._base_trial_resources: PlacementGroupFactory | None = None
        self._mode: str | None = None
        self._pending: dict[str, tuple[Trial, PlacementGroupFactory]] = {}
        self._changed: set[str] = set()

    @property
    def metric(self) -> str | None:
        """The metric of the base scheduler."""
        return self._base_scheduler.metric or self._metric

    @property
    def mode(self) -> str | None:
        """The mode of the base scheduler, "min" or "max", or else that of the experiment."""
        return getattr(self._base_scheduler, "_mode", None) or self._mode

    @property
    def supports_buffered_results(self) -> bool:
        """Whether the base scheduler supports them."""
        return self._base_scheduler.supports_buffered_results

    @property
    def base_trial_resources(self) -> PlacementGroupFactory | None:
        """The resources that trials start with."""
        return self._base_trial_resources

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the objective of the base scheduler."""
        self._metric = metric
        self._mode = mode
        return self._base_scheduler.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Check that the trial starts with the same resources as the others.

        Raises:
            ValueError: It does not.
        """
        resources = trial.placement_group_factory
        if self._base_trial_resources is None:
            self._base_trial_resources = resources
        elif trial.trial_id not in self._changed and resources != self._base_trial_resources:
            raise ValueError(
                f"{trial} starts with {resources}, but earlier trials with {self._base_trial_resources}: "
                "ResourceChangingScheduler needs the same resources for all trials."
            )
        self._base_scheduler.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """Notify the base scheduler."""
        self._pending.pop(trial.trial_id, None)
        self._base_scheduler.on_trial_error(tune_controller, trial)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Let the base scheduler decide, and pause a trial that continues with other resources."""
        decision = self._base_scheduler.on_trial_result(tune_controller, trial, result)
        if decision != TrialScheduler.CONTINUE or self._allocate is None:
            return decision
        resources = self._allocate(tune_controller, trial, result, self)
        if not resources or resources == trial.placement_group_factory:
            return decision
        self._pending[trial.trial_id] = (trial, resources)
        return TrialScheduler.PAUSE

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Notify the base scheduler."""
        self._pending.pop(trial.trial_id, None)
        self._base_scheduler.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """Notify the base scheduler."""
        self._pending.pop(trial.trial_id, None)
        self._base_scheduler.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """Change the resources of paused trials, and return what the base scheduler chooses.

        Raises:
            ValueError: The experiment reuses processes, whose resources cannot change.
        """
        if isinstance(tune_controller, ReusesActors) and tune_controller._reuse_actors is True:
            raise ValueError(
                "ResourceChangingScheduler starts trials in new processes: set TuneConfig(reuse_actors=False)."
            )
        for name, (trial, resources) in list(self._pending.items()):
            if trial.status != Trial.RUNNING:
                del self._pending[name]
                self._changed.add(name)
                trial.placement_group_factory = resources
        return self._base_scheduler.choose_trial_to_run(tune_controller)

    def debug_string(self) -> str:
        """Return the description of the base scheduler."""
        return f"(ResourceChangingScheduler) {self._base_scheduler.debug_string()}"


def _check_unit(unit: Bundle) -> None:
    unknown = sorted(set(unit) - set(DISTRIBUTED))
    amounts = [unit.get(resource, 0) for resource in DISTRIBUTED]
    if unknown or min(amounts) < 0 or not any(amounts):
        raise ValueError(
            f"A unit of resources must be CPUs, GPUs or both, such as {{'CPU': 1}}, not {dict(unit)}."
        )


def _bundles_of(trial: Trial) -> list[dict[str, float]]:
    factory = trial.placement_group_factory
    return [] if factory is None else factory.bundles


def _amount(bundles: list[dict[str, float]], resource: str) -> float:
    return sum(bundle.get(resource, 0) for bundle in bundles)


def _count_available(unit: Bundle, available: Bundle) -> int:
    """Return how many units are available; negative if resources are missing."""
    return min(math.floor(available[name] / amount + _ROUNDING) for name, amount in unit.items() if amount)
