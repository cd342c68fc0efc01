"""Asynchronous successive halving on synthetic learning curves."""

from __future__ import annotations

import itertools
import math
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.tune.experiment import Trial
from skate.tune.schedulers import ASHAScheduler, AsyncHyperBandScheduler, TrialScheduler
from tests.tune.schedulers.simulation import Simulation, linear, slopes

CONTINUE, STOP = TrialScheduler.CONTINUE, TrialScheduler.STOP


def asha(**options: Any) -> ASHAScheduler:
    return ASHAScheduler(**{"metric": "score", "mode": "max", **options})


def report(scheduler: ASHAScheduler, trial: Trial, iteration: float, score: float) -> str:
    return scheduler.on_trial_result(None, trial, {"training_iteration": iteration, "score": score})  # type: ignore[arg-type]


def add(scheduler: ASHAScheduler, count: int) -> list[Trial]:
    trials = [Trial("t", trial_id=str(number)) for number in range(count)]
    for trial in trials:
        scheduler.on_trial_add(None, trial)  # type: ignore[arg-type]
    return trials


def test_asha_is_the_short_name() -> None:
    assert ASHAScheduler is AsyncHyperBandScheduler


def test_rungs_are_powers_of_the_factor() -> None:
    scheduler = asha(max_t=1000, reduction_factor=10, brackets=5)
    times = [[rung.time for rung in bracket.rungs] for bracket in scheduler._brackets]
    assert times == [[1, 10, 100, 1000], [10, 100, 1000], [100, 1000], [1000], []]
    assert [
        rung.time for rung in asha(grace_period=2.5, max_t=20, reduction_factor=2)._brackets[0].rungs
    ] == [
        2.5,
        5,
        10,
        20,
    ]


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_about_one_in_factor_continues_at_each_rung(factor: int) -> None:
    scheduler = asha(max_t=factor**3, reduction_factor=factor)
    configs = slopes(500)
    simulation = Simulation(scheduler, configs, linear, slots=500, seed=3).run()
    reached = [
        sum(iterations >= factor**rung for iterations in simulation.iteration.values()) for rung in range(4)
    ]
    # Trials that arrive early have fewer to compare with, so some more than 1/factor continue.
    for before, after in itertools.pairwise(reached[1:]):
        assert before / factor * 0.8 <= after + 5
        assert after <= before / factor * 1.7 + 5


def test_the_cutoff_is_interpolated_between_earlier_scores() -> None:
    scheduler = asha(reduction_factor=2)
    first, second, *others = add(scheduler, 4)
    assert report(scheduler, first, 1, 100) == CONTINUE
    assert report(scheduler, second, 1, 450) == CONTINUE
    assert report(scheduler, others[0], 1, 274.9) == STOP  # the median of 100 and 450 is 275
    assert report(scheduler, others[1], 1, 274.9) == CONTINUE


def test_the_best_curves_finish_with_far_fewer_iterations() -> None:
    simulation = Simulation(asha(max_t=81, reduction_factor=3), slopes(200), linear, slots=8, seed=0).run()
    finished = [t for t in simulation.trials if simulation.iteration[t.trial_id] == 81]
    assert max(t.config["slope"] for t in finished) == 200
    assert simulation.steps < 0.25 * 200 * 81


def test_no_trial_stops_in_the_grace_period() -> None:
    simulation = Simulation(asha(max_t=30, grace_period=5), slopes(50), linear, seed=0).run()
    assert min(simulation.iteration.values()) == 5


def test_a_trial_is_judged_once_at_each_rung() -> None:
    scheduler = asha(max_t=100, reduction_factor=2)
    good, bad = add(scheduler, 2)
    assert report(scheduler, bad, 2, 1) == CONTINUE
    assert report(scheduler, good, 2, 10) == CONTINUE
    assert [report(scheduler, bad, 3, 1), report(scheduler, bad, 3.9, 1)] == [CONTINUE, CONTINUE]
    report(scheduler, good, 4, 10)
    assert report(scheduler, bad, 4, 1) == STOP


def test_a_trial_that_jumps_is_judged_at_the_last_rung_it_reaches() -> None:
    scheduler = asha(max_t=100, reduction_factor=2)
    first, jumping = add(scheduler, 2)
    for iteration in range(1, 17):
        report(scheduler, first, iteration, 10 * iteration)
    assert report(scheduler, jumping, 16, 159) == STOP
    assert len(scheduler._brackets[0].rungs[0]._scores) == 1, "its score does not count for earlier rungs"


def test_trials_stop_at_max_t_unless_told_otherwise() -> None:
    scheduler = asha(max_t=10)
    assert report(scheduler, add(scheduler, 1)[0], 10, 1) == STOP
    scheduler = asha(max_t=3, reduction_factor=2, stop_last_trials=False)
    first, second = add(scheduler, 2)
    assert report(scheduler, first, 2, 10) == CONTINUE
    assert report(scheduler, second, 2, 9) == STOP
    assert [report(scheduler, first, time, 1) for time in (4, 8, 14)] == [CONTINUE] * 3


def test_the_last_result_of_a_completed_trial_counts() -> None:
    scheduler = asha(max_t=100, reduction_factor=2)
    first, second, third = add(scheduler, 3)
    for trial in (first, second):
        scheduler.on_trial_complete(None, trial, {"training_iteration": 10, "score": 1000})  # type: ignore[arg-type]
    assert report(scheduler, third, 8, 999) == STOP


def test_scores_that_are_no_numbers_do_not_count() -> None:
    scheduler = asha(reduction_factor=2)
    first, diverged, third, fourth = add(scheduler, 4)
    report(scheduler, first, 1, 450)
    assert report(scheduler, diverged, 1, math.nan) == CONTINUE
    assert report(scheduler, third, 1, 260) == STOP
    assert report(scheduler, fourth, 1, math.inf) == CONTINUE
    assert report(scheduler, diverged, 1.5, 100) == STOP, "its first number is judged"


def test_brackets_with_more_rungs_get_more_trials() -> None:
    scheduler = asha(max_t=81, reduction_factor=3, brackets=3, seed=0)
    add(scheduler, 1000)
    sizes = [
        sum(progress.bracket is bracket for progress in scheduler._trials.values())
        for bracket in scheduler._brackets
    ]
    assert sizes[0] > 2 * sizes[1] > 4 * sizes[2] > 0


def test_a_seed_fixes_the_brackets() -> None:
    def assignments(seed: int) -> list[int]:
        scheduler = asha(brackets=3, seed=seed)
        add(scheduler, 50)
        return [scheduler._brackets.index(progress.bracket) for progress in scheduler._trials.values()]

    assert assignments(1) == assignments(1) != assignments(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_t": 0}, "max_t must be greater than 0, not 0"),
        ({"max_t": 5, "grace_period": 6}, "at most max_t=5, not 6"),
        ({"grace_period": 0}, "grace_period must be greater than 0"),
        ({"reduction_factor": 1}, "reduction_factor must be greater than 1, not 1"),
        ({"reduction_factor": math.nan}, "reduction_factor must be"),
        ({"brackets": 0}, "brackets must be at least 1, not 0"),
        ({"mode": "mean"}, "mode must be 'min' or 'max', not 'mean'"),
    ],
)
def test_bad_arguments_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asha(**options)


def test_ten_thousand_trials_take_little_time() -> None:
    scheduler = asha(max_t=16, reduction_factor=2)
    started = time.perf_counter()
    for trial in add(scheduler, 10_000):
        for iteration in (1, 2, 4, 8):
            if report(scheduler, trial, iteration, random.random()) == STOP:
                break
    assert time.perf_counter() - started < 5


rankings = st.integers(2, 30).flatmap(lambda count: st.permutations(range(count)))


@settings(max_examples=25)
@given(rankings, st.integers(2, 5), st.integers(0, 1000), st.integers(1, 3))
def test_the_best_of_ordered_curves_is_never_stopped(
    ranking: list[int], factor: int, seed: int, brackets: int
) -> None:
    scheduler = asha(max_t=30, reduction_factor=factor, brackets=brackets, seed=seed)
    configs = [{"slope": float(rank + 1)} for rank in ranking]
    simulation = Simulation(scheduler, configs, linear, slots=5, seed=seed).run()
    best = simulation.trials[ranking.index(max(ranking))]
    assert simulation.iteration[best.trial_id] == 30


@settings(max_examples=25)
@given(rankings, st.integers(2, 5), st.integers(0, 1000))
def test_the_total_work_is_between_the_grace_periods_and_full_training(
    ranking: list[int], factor: int, seed: int
) -> None:
    scheduler = asha(max_t=20, grace_period=2, reduction_factor=factor)
    configs = [{"slope": float(rank)} for rank in ranking]
    simulation = Simulation(scheduler, configs, linear, slots=5, seed=seed).run()
    assert 2 * len(ranking) <= simulation.steps <= 20 * len(ranking)
    assert set(simulation.iteration.values()) <= {2 * factor**power for power in range(5)} | {20}
