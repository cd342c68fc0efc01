"""Synchronous HyperBand, and its variant for BOHB, on synthetic learning curves."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.tune.experiment import Trial
from skate.tune.schedulers import HyperBandForBOHB, HyperBandScheduler, TrialScheduler
from skate.tune.schedulers.hyperband import Bracket, plan_brackets
from tests.tune.schedulers.simulation import Simulation, linear, slopes

CONTINUE, PAUSE, STOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP


def hyperband(**options: Any) -> HyperBandScheduler:
    return HyperBandScheduler(**{"metric": "score", "mode": "max", **options})


def report(simulation: Simulation, trial: Trial, iteration: float, score: float) -> str:
    if trial.status == Trial.PENDING:
        trial.set_status(Trial.RUNNING)
        simulation.running.append(trial)
    result = {"training_iteration": iteration, "score": score}
    action = simulation.scheduler.on_trial_result(simulation, trial, result)
    if action == PAUSE:
        simulation.pause_trial(trial)
    elif action == STOP:
        simulation.stop_trial(trial)
    return action


def test_brackets_start_with_the_sizes_of_the_paper_and_halve_rounding_up() -> None:
    plans = plan_brackets(81, 3)
    assert [(plan.sizes, plan.milestones) for plan in plans] == [
        ([5], [81]),
        ([8, 3], [27, 81]),
        ([15, 5, 2], [9, 27, 81]),
        ([34, 12, 4, 2], [3, 9, 27, 81]),
        ([81, 27, 9, 3, 1], [1, 3, 9, 27, 81]),
    ]


@pytest.mark.parametrize(
    ("max_t", "factor", "count", "largest"), [(1000, 10, 4, 1000), (243, 3, 6, 243), (1, 3, 1, 1)]
)
def test_a_power_of_the_factor_has_one_bracket_for_each_exponent(
    max_t: int, factor: int, count: int, largest: int
) -> None:
    plans = plan_brackets(max_t, factor)
    assert len(plans) == count
    assert plans[-1].sizes[0] == largest
    assert plans[-1].milestones[0] == 1


@given(st.floats(0.1, 1e5), st.floats(1.1, 10))
def test_every_bracket_ends_at_max_t_with_at_least_one_trial(max_t: float, factor: float) -> None:
    for halvings, plan in enumerate(plan_brackets(max_t, factor)):
        assert len(plan.sizes) == len(plan.milestones) == halvings + 1
        assert plan.milestones[-1] == max_t
        assert plan.milestones == sorted(plan.milestones)
        assert plan.milestones[0] > 0
        assert plan.sizes == sorted(plan.sizes, reverse=True)
        assert plan.sizes[-1] >= 1


def test_brackets_fill_one_after_the_other_and_then_a_new_band_starts() -> None:
    simulation = Simulation(hyperband(max_t=9), slopes(3 + 5 + 9 + 1), linear)
    bands = simulation.scheduler._bands  # type: ignore[attr-defined]
    assert [[len(bracket.trial_ids()) for bracket in band] for band in bands] == [[3, 5, 9], [1]]
    assert simulation.scheduler.state() == {"num_brackets": 4, "num_stopped": 0}  # type: ignore[attr-defined]


def test_the_best_of_a_bracket_continue_together() -> None:
    # Brackets of 3 trials (to 9) and of 5 trials (to 3, then 2 to 9).
    simulation = Simulation(hyperband(max_t=9), slopes(8), linear)
    bracket = simulation.trials[3:]
    assert [report(simulation, trial, 3, score) for score, trial in enumerate(bracket)] == [PAUSE] * 4 + [
        CONTINUE
    ]
    statuses = [trial.status for trial in bracket]
    assert statuses == [Trial.TERMINATED] * 3 + [Trial.PAUSED, Trial.RUNNING]
    assert simulation.scheduler.state()["num_stopped"] == 3  # type: ignore[attr-defined]
    simulation.trials[0].set_status(Trial.RUNNING)
    assert report(simulation, bracket[4], 9, 1) == PAUSE
    assert simulation.scheduler.choose_trial_to_run(simulation) in (*simulation.trials[1:3], bracket[3])


def test_the_last_to_report_stops_if_it_is_bad() -> None:
    simulation = Simulation(hyperband(max_t=9), slopes(8), linear)
    bracket = simulation.trials[3:]
    assert [report(simulation, trial, 3, -score) for score, trial in enumerate(bracket)] == [PAUSE] * 4 + [
        STOP
    ]


def test_a_paused_trial_does_not_run_before_its_bracket_halves() -> None:
    simulation = Simulation(hyperband(max_t=3, reduction_factor=3), slopes(2), linear)
    first, second = simulation.trials
    assert report(simulation, first, 3, 1) == PAUSE
    assert simulation.scheduler.choose_trial_to_run(simulation) is second
    second.set_status(Trial.RUNNING)
    assert simulation.scheduler.choose_trial_to_run(simulation) is None


def test_a_late_trial_trains_to_the_current_milestone() -> None:
    simulation = Simulation(hyperband(max_t=9), slopes(4), linear)
    first = simulation.trials[3]
    assert report(simulation, first, 3, 1) == CONTINUE
    late = simulation.add({"slope": 1.0})
    assert report(simulation, late, 3, 1) == CONTINUE
    assert report(simulation, late, 9, 1) == PAUSE


def test_trials_that_jump_over_milestones_do_not_block_their_bracket() -> None:
    simulation = Simulation(hyperband(max_t=27), slopes(4 + 6 + 12), linear)
    bracket = simulation.trials[10:]
    for score, trial in enumerate(bracket):
        report(simulation, trial, 20, score)
    # 12 trials halve at 3 and at 9; two train on to 27.
    assert [trial.status for trial in bracket[-2:]] == [Trial.PAUSED, Trial.RUNNING]
    assert sum(trial.status == Trial.TERMINATED for trial in bracket) == 10


def test_trials_that_jump_over_the_end_stop() -> None:
    simulation = Simulation(hyperband(max_t=8, reduction_factor=2), slopes(4 + 4), linear)
    for score, trial in enumerate(simulation.trials[4:]):
        report(simulation, trial, 8, score)
    assert {trial.status for trial in simulation.trials[4:]} == {Trial.TERMINATED}


def test_the_last_trials_continue_if_told_so() -> None:
    simulation = Simulation(
        hyperband(max_t=8, reduction_factor=2, stop_last_trials=False), slopes(8), linear, length=20
    ).run()
    assert sum(iteration == 20 for iteration in simulation.iteration.values()) == 4 + 2


def test_a_trial_that_fails_last_lets_its_bracket_halve() -> None:
    simulation = Simulation(hyperband(max_t=9), slopes(8), linear)
    bracket = simulation.trials[3:]
    for trial in bracket[:-1]:
        report(simulation, trial, 3, 1)
    report(simulation, bracket[-1], 1, 1)
    simulation.fail(bracket[-1])
    assert sum(trial.status == Trial.PAUSED for trial in bracket) == 2
    assert sum(trial.status == Trial.TERMINATED for trial in bracket) == 2


def test_a_score_that_is_no_number_is_the_worst() -> None:
    bracket = Bracket(plan_brackets(3, 3)[1], stop_last_trials=True)
    for name, score in (("nan", math.nan), ("low", -5.0), ("high", 5.0)):
        bracket.add(name)
        bracket.record(name, (1.0, score))  # type: ignore[arg-type]
    assert set(bracket.halve()) == {"nan", "low"}


def test_the_work_of_a_full_band_is_about_the_same_in_every_bracket() -> None:
    plans = plan_brackets(81, 3)
    scheduler = hyperband(max_t=81)
    simulation = Simulation(scheduler, slopes(sum(plan.sizes[0] for plan in plans)), linear).run()
    assert simulation.steps == sum(plan.work() for plan in plans)
    assert simulation.best().config["slope"] == len(simulation.trials)
    assert simulation.iteration[simulation.best().trial_id] == 81
    assert all(plan.work() <= 6 * 81 for plan in plans)


def test_debug_string_counts_the_trials_of_each_bracket() -> None:
    simulation = Simulation(hyperband(max_t=9), slopes(8), linear)
    report(simulation, simulation.trials[3], 3, 1)
    assert simulation.scheduler.debug_string().splitlines() == [
        "Using HyperBand: num_stopped=0 total_brackets=2",
        "Round #0:",
        "  Bracket(Max Size (n)=3, Milestone (r)=9, completed=0.0%): {PENDING: 3}",
        "  Bracket(Max Size (n)=5, Milestone (r)=3, completed=11.1%): {PAUSED: 1, PENDING: 4}",
    ]


def test_results_are_not_buffered() -> None:
    assert not hyperband().supports_buffered_results


@pytest.mark.parametrize(
    "options", [{"max_t": 0}, {"reduction_factor": 1}, {"reduction_factor": 0.5}, {"mode": "up"}]
)
def test_bad_arguments_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        hyperband(**options)


@settings(max_examples=15)
@given(st.permutations(range(22)), st.integers(0, 1000), st.integers(1, 8))
def test_what_survives_does_not_depend_on_the_order_of_reports(
    ranking: list[int], seed: int, slots: int
) -> None:
    configs = [{"slope": float(rank)} for rank in ranking]
    simulation = Simulation(hyperband(max_t=27), configs, linear, slots=slots, seed=seed).run()
    other = Simulation(hyperband(max_t=27), configs, linear, slots=22).run()
    assert simulation.iteration == other.iteration


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 1000))
def test_the_best_of_ordered_curves_trains_to_the_end(count: int, slots: int, seed: int) -> None:
    for scheduler in (hyperband(max_t=27), HyperBandForBOHB(metric="score", mode="max", max_t=27)):
        simulation = Simulation(scheduler, slopes(count, seed), linear, slots=slots, seed=seed).run()
        assert simulation.best().config["slope"] == count
        assert simulation.iteration[simulation.best().trial_id] == 27


class Searcher:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def on_pause(self, trial_id: str) -> None:
        self.calls.append(("pause", trial_id))

    def on_unpause(self, trial_id: str) -> None:
        self.calls.append(("unpause", trial_id))


def bohb(count: int, **options: Any) -> tuple[Simulation, Searcher]:
    scheduler = HyperBandForBOHB(**{"metric": "score", "mode": "max", "max_t": 3, **options})
    simulation = Simulation(scheduler, slopes(count), linear)
    searcher = Searcher()
    simulation.search_alg = SimpleNamespace(searcher=searcher)
    return simulation, searcher


def test_bohb_fills_the_largest_bracket_first() -> None:
    simulation, _ = bohb(10, max_t=9)
    sizes = [bracket.size for bracket in simulation.scheduler._bands[0]]  # type: ignore[attr-defined]
    assert sizes == [9, 5]


def test_bohb_tells_the_searcher_which_trials_pause() -> None:
    simulation, searcher = bohb(3)
    assert [
        report(simulation, trial, 1, score) for trial, score in zip(simulation.trials, (1, 2, 0), strict=True)
    ] == [
        PAUSE,
        PAUSE,
        STOP,
    ]
    assert searcher.calls == [("pause", "0000"), ("pause", "0001"), ("unpause", "0001")]


def test_bohb_adds_the_budget_to_results_at_a_milestone() -> None:
    simulation, _ = bohb(9, max_t=9)
    early, late = {"training_iteration": 0.5, "score": 1.0}, {"training_iteration": 1, "score": 1.0}
    trial = simulation.trials[0]
    simulation.scheduler.on_trial_result(simulation, trial, early)
    simulation.scheduler.on_trial_result(simulation, trial, late)
    assert early["hyperband_info"] == {}  # type: ignore[comparison-overlap]
    assert late["hyperband_info"] == {"budget": 1}  # type: ignore[comparison-overlap]


def test_bohb_waits_for_more_trials_while_some_run() -> None:
    simulation, _ = bohb(3, max_t=9)
    first, second, third = simulation.trials
    assert report(simulation, first, 1, 1) == PAUSE
    assert report(simulation, second, 0.5, 1) == CONTINUE
    report(simulation, third, 1, 1)
    assert simulation.scheduler.choose_trial_to_run(simulation) is None
    report(simulation, second, 1, 1)
    assert simulation.scheduler.choose_trial_to_run(simulation) is first, (
        "nothing runs, so the bracket halves"
    )


def test_bohb_resumes_only_trials_that_are_behind() -> None:
    simulation, _ = bohb(3, max_t=10, mode="min")
    for trial, iteration, score in zip(simulation.trials, (5, 1, 5), (1, 2, 3), strict=True):
        assert report(simulation, trial, iteration, score) == PAUSE
    assert simulation.scheduler.choose_trial_to_run(simulation) is simulation.trials[1]


def test_bohb_runs_without_a_searcher_that_wants_to_know() -> None:
    simulation, _ = bohb(20, max_t=9)
    simulation.search_alg = None
    simulation.run()
