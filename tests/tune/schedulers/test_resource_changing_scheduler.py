"""Resources that move from trials that have ended to those that train."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.experiment import Trial
from skate.tune.schedulers import ASHAScheduler, ResourceChangingScheduler, TrialScheduler
from skate.tune.schedulers.resource_changing_scheduler import (
    DistributeResources,
    DistributeResourcesToTopJob,
)

CONTINUE, PAUSE, STOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP
Bundles = list[dict[str, float]]


class Machine:
    def __init__(self, cpus: float, gpus: float) -> None:
        self.cpus, self.gpus = cpus, gpus

    def get_num_cpus(self) -> float:
        return self.cpus

    def get_num_gpus(self) -> float:
        return self.gpus


class Controller:
    """Four running trials on a machine."""

    search_alg: Any = None
    _reuse_actors = False

    def __init__(
        self,
        scheduler: ResourceChangingScheduler,
        bundles: Bundles,
        count: int = 4,
        cpus: float = 8,
        gpus: float = 8,
    ) -> None:
        self.scheduler = scheduler
        self._resource_updater = Machine(cpus, gpus)
        self.trials = [
            Trial("t", trial_id=str(number), placement_group_factory=PlacementGroupFactory(bundles))
            for number in range(count)
        ]
        for number, trial in enumerate(self.trials):
            scheduler.on_trial_add(self, trial)  # type: ignore[arg-type]
            trial.set_status(Trial.RUNNING)
            trial.last_result = {"score": 1 - number / 10}

    def get_trials(self) -> list[Trial]:
        return self.trials

    def get_live_trials(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def report(self, number: int, score: float = 1.0, iteration: int = 4) -> str:
        trial = self.trials[number]
        result = {"score": score, "training_iteration": iteration}
        action = self.scheduler.on_trial_result(self, trial, result)  # type: ignore[arg-type]
        trial.last_result = result
        if action == PAUSE:
            trial.set_status(Trial.PAUSED)
            assert self.scheduler.choose_trial_to_run(self) is trial  # type: ignore[arg-type]
            trial.set_status(Trial.RUNNING)
        return action

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.trials[number].set_status(Trial.TERMINATED)

    def bundles(self, number: int) -> Bundles:
        factory = self.trials[number].placement_group_factory
        assert factory is not None
        return factory.bundles


def evenly(bundles: Bundles, **options: Any) -> Controller:
    return Controller(ResourceChangingScheduler(None, DistributeResources(**options)), bundles)


def to_the_best(bundles: Bundles, **options: Any) -> Controller:
    function = DistributeResourcesToTopJob(**{"metric": "score", "mode": "max", **options})
    return Controller(ResourceChangingScheduler(None, function), bundles)


def test_free_cpus_are_shared_evenly() -> None:
    controller = evenly([{"CPU": 1}])
    for number in range(4):
        controller.report(number)
        assert controller.bundles(number) == [{"CPU": 2}]
    controller.end(3)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 3}]
    controller.end(2)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 4}]
    controller.end(1)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 8}]


def test_units_can_be_bundles() -> None:
    controller = evenly([{"CPU": 1}, {"GPU": 2}], add_bundles=True)
    assert controller.report(0) == CONTINUE, "all GPUs are taken"
    controller.end(3)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 1}, {"GPU": 2}, {"GPU": 2}]


def test_an_empty_first_bundle_stays() -> None:
    controller = evenly([{}, {"CPU": 2}], add_bundles=True)
    controller.end(3)
    controller.report(0)
    factory = controller.trials[0].placement_group_factory
    assert factory == PlacementGroupFactory([{}, {"CPU": 2}, {"CPU": 2}])


def test_units_have_several_resources() -> None:
    controller = evenly([{"CPU": 2, "GPU": 2}], increase_by={"CPU": 2, "GPU": 2})
    assert controller.report(0) == CONTINUE
    controller.end(3, 2, 1)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 8, "GPU": 8}]


def test_gpus_grow_if_trials_have_some_and_other_resources_stay() -> None:
    controller = evenly([{"CPU": 1, "GPU": 1, "disk": 3}])
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 1, "GPU": 2, "disk": 3}]


def test_the_number_of_units_can_be_limited() -> None:
    controller = evenly([{"CPU": 1, "GPU": 2}], increase_by={"GPU": 2}, increase_by_times=2)
    controller.end(3, 2, 1)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 1, "GPU": 6}]


def test_some_resources_can_stay_free() -> None:
    controller = evenly([{"CPU": 1}], reserve_resources={"CPU": 2})
    controller.end(3, 2, 1)
    controller.report(0)
    assert controller.bundles(0) == [{"CPU": 6}]


@pytest.mark.parametrize("create", [evenly, to_the_best])
def test_resources_that_waiting_trials_need_are_given_back(create: Any) -> None:
    controller = create([{"CPU": 1, "GPU": 2}], increase_by={"GPU": 2})
    controller.trials[0].placement_group_factory = PlacementGroupFactory([{"CPU": 1, "GPU": 4}])
    controller.trials[3].set_status(Trial.PENDING)
    controller.trials[2].set_status(Trial.RUNNING)
    result = {"score": 1, "training_iteration": 2}
    assert controller.scheduler.on_trial_result(controller, controller.trials[0], result) == PAUSE
    controller.trials[0].set_status(Trial.PAUSED)
    controller.scheduler.choose_trial_to_run(controller)
    assert controller.bundles(0) == [{"CPU": 1, "GPU": 2}]


def test_the_best_trial_gets_everything() -> None:
    controller = to_the_best([{"CPU": 1}])
    assert controller.report(1, 0.9) == CONTINUE
    controller.report(0, 1.0)
    assert controller.bundles(0) == [{"CPU": 5}]
    assert controller.report(1, 1.1) == CONTINUE, "nothing is free"
    controller.end(3)
    controller.report(1, 1.1)
    assert controller.bundles(1) == [{"CPU": 2}]


def test_the_smallest_value_is_the_best_if_told_so() -> None:
    controller = to_the_best([{"CPU": 1}], mode="min")
    assert controller.report(0, 1.0) == CONTINUE
    controller.report(3, 0.1)
    assert controller.bundles(3) == [{"CPU": 5}]


def test_a_diverged_trial_is_not_the_best() -> None:
    controller = to_the_best([{"CPU": 1}])
    assert controller.report(0, float("nan")) == CONTINUE
    assert controller.report(1, 0.9) == PAUSE


def test_the_next_best_trial_grows_when_the_best_has_the_most_units() -> None:
    controller = to_the_best([{"CPU": 1}], increase_by={"CPU": 1}, increase_by_times=2)
    controller.report(0, 1.0)
    assert controller.bundles(0) == [{"CPU": 3}]
    controller.report(1, 0.9)
    assert controller.bundles(1) == [{"CPU": 3}]


def test_the_objective_is_that_of_the_base_scheduler_or_the_experiment() -> None:
    base = ASHAScheduler(metric="score", mode="max")
    controller = Controller(ResourceChangingScheduler(base, DistributeResourcesToTopJob()), [{"CPU": 1}])
    assert controller.scheduler.metric == "score"
    assert controller.report(1, 0.9) == CONTINUE
    assert controller.report(0, 1.0) == PAUSE
    scheduler = ResourceChangingScheduler(None, DistributeResourcesToTopJob())
    assert scheduler.set_search_properties("score", "max")
    assert Controller(scheduler, [{"CPU": 1}]).report(0) == PAUSE
    with pytest.raises(ValueError, match="metric=None and mode=None, but needs both"):
        Controller(ResourceChangingScheduler(None, DistributeResourcesToTopJob()), [{"CPU": 1}]).report(0)


def test_the_base_scheduler_decides_first() -> None:
    base = ASHAScheduler(metric="score", mode="max", max_t=3)
    controller = Controller(ResourceChangingScheduler(base), [{"CPU": 1}])
    assert controller.report(0) == STOP
    assert controller.bundles(0) == [{"CPU": 1}]
    assert controller.scheduler.debug_string().startswith("(ResourceChangingScheduler) Using AsyncHyperBand")


def test_resources_change_only_while_a_trial_does_not_run() -> None:
    controller = evenly([{"CPU": 1}])
    trial = controller.trials[0]
    controller.scheduler.on_trial_result(controller, trial, {"training_iteration": 1})  # type: ignore[arg-type]
    controller.scheduler.choose_trial_to_run(controller)  # type: ignore[arg-type]
    assert controller.bundles(0) == [{"CPU": 1}]
    trial.set_status(Trial.PAUSED)
    controller.scheduler.choose_trial_to_run(controller)  # type: ignore[arg-type]
    assert controller.bundles(0) == [{"CPU": 2}]


def test_a_function_of_the_user_decides() -> None:
    def double(
        controller: Any, trial: Trial, result: dict[str, Any], scheduler: Any
    ) -> PlacementGroupFactory | None:
        return PlacementGroupFactory([{"CPU": 2}]) if result["score"] > 5 else None

    controller = Controller(ResourceChangingScheduler(None, double), [{"CPU": 1}])
    assert controller.report(0, 1) == CONTINUE
    assert controller.report(0, 6) == PAUSE
    assert controller.report(0, 6) == CONTINUE, "the trial has them already"


def test_without_a_function_nothing_changes() -> None:
    with pytest.warns(UserWarning, match="changes nothing"):
        scheduler = ResourceChangingScheduler(None, None)
    assert Controller(scheduler, [{"CPU": 1}]).report(0) == CONTINUE


def test_the_first_iteration_does_not_count() -> None:
    assert evenly([{"CPU": 1}]).report(0, iteration=0) == CONTINUE


def test_trials_must_start_alike_unless_they_were_changed() -> None:
    controller = evenly([{"CPU": 1}])
    controller.report(0)
    controller.scheduler.on_trial_add(controller, controller.trials[0])  # type: ignore[arg-type]
    other = Trial("t", placement_group_factory=PlacementGroupFactory([{"CPU": 3}]))
    with pytest.raises(ValueError, match="needs the same resources for all trials"):
        controller.scheduler.on_trial_add(controller, other)  # type: ignore[arg-type]


def test_bad_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="pass add_bundles=True"):
        evenly([{"CPU": 1}, {"CPU": 1}]).report(0)
    for unit in ({"disk": 1.0}, {"CPU": -1.0}, {"CPU": 0.0}):
        with pytest.raises(ValueError, match="A unit of resources must be"):
            DistributeResources(increase_by=unit)
    with pytest.raises(ValueError, match="A unit of resources must be"):
        evenly([{"CPU": 1}, {"disk": 1}], add_bundles=True).report(0)
    with pytest.raises(ValueError, match="mode must be"):
        DistributeResourcesToTopJob(mode="best")
    scheduler = ResourceChangingScheduler()
    trial = Trial("t")
    controller = Controller(scheduler, [{"CPU": 1}], count=0)
    scheduler.on_trial_add(controller, trial)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="with_resources"):
        scheduler.on_trial_result(controller, trial, {})  # type: ignore[arg-type]


def test_processes_cannot_be_reused() -> None:
    controller = evenly([{"CPU": 1}])
    controller._reuse_actors = True
    with pytest.raises(ValueError, match="reuse_actors=False"):
        controller.scheduler.choose_trial_to_run(controller)  # type: ignore[arg-type]


def test_a_controller_must_know_its_resources() -> None:
    controller = evenly([{"CPU": 1}])
    del controller._resource_updater
    with pytest.raises(TypeError, match="does not know how many CPUs"):
        controller.report(0)


def test_a_pickled_scheduler_continues_identically() -> None:
    original = Controller(
        ResourceChangingScheduler(ASHAScheduler(metric="score", mode="max", reduction_factor=2)), [{"CPU": 1}]
    )
    original.report(0)
    copy = cloudpickle.loads(cloudpickle.dumps(original))
    for controller in (original, copy):
        controller.end(3)
        controller.actions = [controller.report(number, number, 8) for number in range(3)]
    assert original.actions == copy.actions  # type: ignore[attr-defined]
    assert [original.bundles(number) for number in range(4)] == [copy.bundles(number) for number in range(4)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.floats(0, 1)), max_size=30),
    st.integers(4, 20),
    st.booleans(),
    st.booleans(),
)
def test_trials_never_have_more_than_there_is_nor_less_than_they_started_with(
    events: list[tuple[int, bool, float]], cpus: int, add_bundles: bool, best: bool
) -> None:
    function = (
        DistributeResourcesToTopJob(add_bundles, metric="score", mode="max")
        if best
        else DistributeResources(add_bundles)
    )
    controller = Controller(ResourceChangingScheduler(None, function), [{"CPU": 1}], cpus=cpus)
    for number, ends, score in events:
        if controller.trials[number].is_finished():
            continue
        if ends:
            controller.end(number)
        else:
            controller.report(number, score)
        used = [
            sum(bundle["CPU"] for bundle in controller.bundles(int(trial.trial_id)))
            for trial in controller.get_live_trials()
        ]
        assert sum(used) <= cpus
        assert min(used, default=1) >= 1
