"""The median stopping rule on synthetic learning curves."""

from __future__ import annotations

import math
import statistics
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skate.tune.experiment import Trial
from skate.tune.schedulers import MedianStoppingRule, TrialScheduler
from tests.tune.schedulers.simulation import Simulation, linear, slopes

CONTINUE, PAUSE, STOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP


def rule(**options: Any) -> MedianStoppingRule:
    defaults = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "grace_period": 0,
        "min_samples_required": 1,
    }
    return MedianStoppingRule(**{**defaults, **options})


def feed(simulation: Simulation, trial: Trial, *points: tuple[float, float]) -> list[str]:
    return [
        simulation.scheduler.on_trial_result(simulation, trial, {"training_iteration": time, "score": score})
        for time, score in points
    ]


def running(scheduler: MedianStoppingRule, count: int) -> tuple[Simulation, list[Trial]]:
    simulation = Simulation(scheduler, slopes(count), linear)
    for trial in simulation.trials:
        trial.set_status(Trial.RUNNING)
    return simulation, simulation.trials


def test_a_trial_below_the_median_of_averages_stops() -> None:
    simulation, (first, second, third) = running(rule(), 3)
    feed(simulation, first, (1, 0), (2, 100), (3, 200))
    feed(simulation, second, (1, 400), (2, 400), (3, 400))
    # At 1 the averages are 0 and 400; at 3 they are 100 and 400.
    assert feed(simulation, third, (1, 210), (3, 210)) == [CONTINUE, STOP]


def test_the_best_result_so_far_is_what_counts() -> None:
    simulation, (first, second) = running(rule(), 2)
    feed(simulation, first, (1, 100), (2, 100), (3, 100))
    assert feed(simulation, second, (1, 150), (2, 0), (3, 0)) == [CONTINUE] * 3


def test_only_trials_that_have_trained_as_long_are_compared() -> None:
    simulation, (short, long, judged) = running(rule(), 3)
    feed(simulation, short, (1, 1000))
    feed(simulation, long, (1, 10), (5, 10))
    assert feed(simulation, judged, (2, 20)) == [CONTINUE]
    simulation.scheduler.on_trial_complete(simulation, short, {"training_iteration": 2, "score": 1000})
    assert feed(simulation, judged, (2.5, 20)) == [CONTINUE]
    assert feed(simulation, judged, (2, 20)) == [STOP]


def test_no_trial_stops_in_the_grace_period_and_averages_start_after_it() -> None:
    simulation, (first, second) = running(rule(grace_period=2.5), 2)
    feed(simulation, first, (1, 1000), (2, 1000), (3, 10), (4, 10))
    assert feed(simulation, second, (1, 1), (2, 1)) == [CONTINUE, CONTINUE]
    assert feed(simulation, second, (3, 11)) == [CONTINUE], "the scores before the grace period do not count"


def test_too_few_others_decide_nothing() -> None:
    simulation, (first, second, third) = running(rule(min_samples_required=2), 3)
    feed(simulation, first, (5, 100))
    assert feed(simulation, third, (5, 1)) == [CONTINUE]
    feed(simulation, second, (5, 100))
    assert feed(simulation, third, (5, 1)) == [STOP]


def test_a_trial_that_cannot_be_judged_gives_way_to_waiting_ones() -> None:
    simulation, (first, second) = running(rule(min_time_slice=2), 2)
    second.set_status(Trial.PENDING)
    assert feed(simulation, first, (1, 1), (2, 1), (3, 1), (4, 1)) == [PAUSE, CONTINUE, CONTINUE, PAUSE]
    second.set_status(Trial.RUNNING)
    assert feed(simulation, first, (9, 1)) == [CONTINUE]


def test_a_soft_stop_pauses_and_lets_the_trial_run_later() -> None:
    simulation, (first, second) = running(rule(hard_stop=False), 2)
    feed(simulation, first, (1, 100), (2, 100))
    assert feed(simulation, second, (1, 1), (2, 1)) == [PAUSE, CONTINUE]
    assert simulation.scheduler.debug_string() == "Using MedianStoppingRule: num_stopped=1."


def test_with_soft_stops_every_trial_runs_to_its_end() -> None:
    simulation = Simulation(rule(hard_stop=False), slopes(12), linear, slots=3, length=6).run()
    assert set(simulation.iteration.values()) == {6}


def test_a_restored_trial_replaces_the_results_that_it_repeats() -> None:
    simulation, (first, second) = running(rule(), 2)
    feed(simulation, first, (1, 10), (2, 1000), (3, 1000), (2, 10), (3, 10))
    assert feed(simulation, second, (3, 11)) == [CONTINUE]


def test_scores_that_are_no_numbers_do_not_count() -> None:
    simulation, (diverged, first, second) = running(rule(), 3)
    assert feed(simulation, diverged, (1, math.nan), (2, math.nan)) == [CONTINUE, CONTINUE]
    feed(simulation, first, (1, 10), (2, 10))
    assert feed(simulation, second, (1, 11), (2, 9)) == [CONTINUE, CONTINUE]


def test_the_best_curves_finish_with_fewer_iterations() -> None:
    simulation = Simulation(
        rule(grace_period=3, min_samples_required=3), slopes(60), linear, length=50, seed=2
    ).run()
    assert simulation.iteration[simulation.best().trial_id] == 50
    assert simulation.best().config["slope"] == 60
    assert simulation.steps < 0.7 * 60 * 50


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), min_size=2, max_size=8),
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
)
def test_decisions_are_those_of_the_definition(others: list[list[float]], scores: list[float]) -> None:
    simulation, (*finished, judged) = running(rule(), len(others) + 1)
    for trial, curve in zip(finished, others, strict=True):
        for time, score in enumerate(curve):
            simulation.scheduler.on_trial_complete(
                simulation, trial, {"training_iteration": time, "score": score}
            )
    for time, score in enumerate(scores):
        averages = [sum(curve[: time + 1]) / (time + 1) for curve in others]
        (action,) = feed(simulation, judged, (time, score))
        difference = max(scores[: time + 1]) - statistics.median(averages)
        if abs(difference) > 1e-9:
            assert action == (CONTINUE if difference > 0 else STOP)
        if action == STOP:
            break


@settings(max_examples=30)
@given(st.integers(2, 30), st.integers(0, 1000), st.integers(1, 6))
def test_the_best_of_ordered_curves_is_never_stopped(count: int, seed: int, slots: int) -> None:
    simulation = Simulation(rule(), slopes(count, seed), linear, slots=slots, length=12, seed=seed).run()
    best = max(simulation.trials, key=lambda trial: trial.config["slope"])
    assert simulation.iteration[best.trial_id] == 12
