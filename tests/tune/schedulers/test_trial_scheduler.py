"""The interface of schedulers, first in first out, and the objective that most of them share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from skate.tune.experiment import Trial
from skate.tune.result import DEFAULT_METRIC
from skate.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    TrialScheduler,
)
from tests.tune.schedulers.simulation import QueueSimulation, Simulation, linear, slopes

CONTINUE = TrialScheduler.CONTINUE
EARLY_STOPPING: dict[str, Any] = {
    "asha": lambda **options: ASHAScheduler(max_t=27, reduction_factor=3, **options),
    "hyperband": lambda **options: HyperBandScheduler(max_t=27, **options),
    "bohb": lambda **options: HyperBandForBOHB(max_t=27, **options),
    "median": lambda **options: MedianStoppingRule(
        time_attr="training_iteration", grace_period=2, min_samples_required=2, **options
    ),
}
each_scheduler = pytest.mark.parametrize("create", EARLY_STOPPING.values(), ids=EARLY_STOPPING)


def test_fifo_runs_trials_in_the_order_in_which_they_were_added() -> None:
    simulation = Simulation(FIFOScheduler(), slopes(5), linear, slots=2, length=3).run()
    assert [name for event, name in simulation.events if event == "run"] == [f"{i:04d}" for i in range(5)]
    assert simulation.steps == 15


def test_fifo_starts_pending_trials_before_paused_ones() -> None:
    simulation = Simulation(FIFOScheduler(), slopes(3), linear)
    first, second, _ = simulation.trials
    first.set_status(Trial.PAUSED)
    second.set_status(Trial.RUNNING)
    assert simulation.scheduler.choose_trial_to_run(simulation) is simulation.trials[2]
    simulation.trials[2].set_status(Trial.TERMINATED)
    assert simulation.scheduler.choose_trial_to_run(simulation) is first
    first.set_status(Trial.ERROR)
    assert simulation.scheduler.choose_trial_to_run(simulation) is None


@pytest.mark.parametrize(
    "scheduler",
    [
        FIFOScheduler(),
        ASHAScheduler(metric="score", mode="max", max_t=9),
        HyperBandScheduler("training_iteration", "score", "max", 9),
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_decisions_never_search_all_trials_if_the_controller_lists_the_waiting_ones(
    scheduler: TrialScheduler,
) -> None:
    QueueSimulation(scheduler, slopes(40), linear, length=20).run()


def test_every_decision_is_the_subclass_s() -> None:
    scheduler = TrialScheduler()
    for method, arguments in (
        ("on_trial_add", 2),
        ("on_trial_error", 2),
        ("on_trial_result", 3),
        ("on_trial_complete", 3),
        ("on_trial_remove", 2),
        ("choose_trial_to_run", 1),
        ("debug_string", 0),
    ):
        with pytest.raises(NotImplementedError):
            getattr(scheduler, method)(*[None] * arguments)


def test_fifo_takes_the_metric_of_the_experiment() -> None:
    scheduler = FIFOScheduler()
    assert scheduler.set_search_properties(None, None)
    assert scheduler.metric == DEFAULT_METRIC
    scheduler = FIFOScheduler()
    assert scheduler.set_search_properties("score", "max")
    assert scheduler.metric == "score"
    assert not scheduler.set_search_properties("other", "max")
    assert scheduler.supports_buffered_results
    assert "FIFO" in scheduler.debug_string()


@each_scheduler
class TestObjectives:
    def test_the_objective_comes_from_the_experiment(self, create: Any) -> None:
        scheduler = create()
        assert scheduler.set_search_properties("score", "max", num_samples=3)
        assert scheduler.metric == "score"
        Simulation(scheduler, slopes(12), linear, length=30).run()

    def test_an_objective_is_not_replaced(self, create: Any) -> None:
        assert not create(metric="score", mode="max").set_search_properties("other", None)
        assert not create(metric="score", mode="max").set_search_properties(None, "min")
        assert create(metric="score", mode="max").set_search_properties(None, None)

    def test_a_mode_alone_means_the_metric_that_functions_return(self, create: Any) -> None:
        scheduler = create()
        assert scheduler.set_search_properties(None, "min")
        assert scheduler.metric == DEFAULT_METRIC

    def test_trials_need_an_objective(self, create: Any) -> None:
        scheduler = create(metric="score")
        with pytest.raises(ValueError, match=r"metric='score' and mode=None, but needs both: pass them"):
            scheduler.on_trial_add(None, Trial("t"))

    def test_an_unknown_mode_is_an_error(self, create: Any) -> None:
        with pytest.raises(
            ValueError, match=r"mode must be 'min' or 'max', not 'maxx'. Did you mean 'max'\?"
        ):
            create(mode="maxx")
        with pytest.raises(ValueError, match="mode must be"):
            create().set_search_properties("score", "best")

    def test_a_result_without_the_metric_is_logged_once(
        self, create: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        simulation = Simulation(create(metric="scores", mode="max"), slopes(3), linear)
        for trial in simulation.trials:
            for _ in range(5):
                result = {"score": 1, "training_iteration": 1}
                assert simulation.scheduler.on_trial_result(simulation, trial, result) == CONTINUE
        (record,) = caplog.records
        assert "metric='scores', but a trial reported only" in record.message
        assert "'score', 'training_iteration'" in record.message
        assert "Did you mean 'score'?" in record.message
        assert record.levelname == "ERROR"

    def test_a_result_without_a_time_is_logged_once(
        self, create: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        simulation = Simulation(create(metric="score", mode="max"), slopes(1), linear)
        (trial,) = simulation.trials
        for _ in range(3):
            assert simulation.scheduler.on_trial_result(simulation, trial, {"score": 1}) == CONTINUE
        (record,) = caplog.records
        assert "time_attr='training_iteration', but a trial reported only ['score']" in record.message
        simulation.scheduler.on_trial_complete(simulation, trial, {})

    def test_a_metric_that_is_no_number_is_an_error(self, create: Any) -> None:
        simulation = Simulation(create(metric="score", mode="max"), slopes(1), linear)
        with pytest.raises(TypeError, match="needs a number as 'score', but a trial reported 'good'"):
            simulation.scheduler.on_trial_result(
                simulation, simulation.trials[0], {"training_iteration": 1, "score": "good"}
            )

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_results_that_are_not_finite_end_no_experiment(self, create: Any, mode: str) -> None:
        values = [math.nan, math.inf, -math.inf, 1.0, 2.0, math.nan, 3.0]
        simulation = Simulation(
            create(metric="score", mode=mode),
            [{"value": value} for value in values],
            lambda config, state, iteration: float(config["value"]),
            length=40,
        )
        simulation.run()
        assert simulation.scheduler.debug_string()

    def test_a_saved_scheduler_continues_identically(self, create: Any, tmp_path: Path) -> None:
        original = Simulation(create(metric="score", mode="max"), slopes(30), linear, length=40)
        for _ in range(60):
            original.step()
        copy = cloudpickle.loads(cloudpickle.dumps(original))
        original.scheduler.save(str(tmp_path / "state"))
        restored = cloudpickle.loads(cloudpickle.dumps(original))
        restored.scheduler = create()
        restored.scheduler.restore(str(tmp_path / "state"))
        for trial in restored.trials:
            if not trial.is_finished():
                restored.scheduler.on_trial_add(restored, trial)
        for simulation in (original, copy, restored):
            simulation.run()
        assert original.events == copy.events == restored.events
        assert original.scheduler.debug_string() == copy.scheduler.debug_string()

    def test_minimizing_is_maximizing_the_negative(self, create: Any) -> None:
        def negative(config: dict[str, Any], state: float, iteration: int) -> float:
            return -linear(config, state, iteration)

        up = Simulation(create(metric="score", mode="max"), slopes(25), linear, length=40).run()
        down = Simulation(create(metric="score", mode="min"), slopes(25), negative, length=40).run()
        assert up.events == down.events

    def test_failed_trials_hold_up_nobody(self, create: Any) -> None:
        simulation = Simulation(create(metric="score", mode="max"), slopes(30), linear, length=40, seed=1)
        for number in range(1000):
            if not simulation.step():
                break
            if number % 7 == 3 and simulation.running:
                simulation.fail(simulation.running[0])
        assert not simulation.get_live_trials()

    def test_removed_trials_hold_up_nobody(self, create: Any) -> None:
        simulation = Simulation(create(metric="score", mode="max"), slopes(30), linear, length=40)
        for number in range(1000):
            if not simulation.step():
                break
            waiting = [t for t in simulation.trials if t.status in (Trial.PENDING, Trial.PAUSED)]
            if number % 5 == 2 and waiting:
                simulation.stop_trial(waiting[len(waiting) // 2])
        assert not simulation.get_live_trials()
