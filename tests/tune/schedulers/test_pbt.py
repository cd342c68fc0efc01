"""Population based training on a toy problem, and its replay."""

from __future__ import annotations

import json
import math
import random
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay, TrialScheduler
from skate.tune.schedulers._policy_log import read_schedule
from skate.tune.search.sample import uniform
from tests.tune.schedulers.simulation import ExploitSimulation, Saved, Simulation

CONTINUE, PAUSE, NOOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.NOOP


def gain(config: dict[str, Any], state: float, iteration: int) -> float:
    """Training that gains the most with a rate of 0.5."""
    return state + 1 - 4 * (float(config["rate"]) - 0.5) ** 2


def pbt(**options: Any) -> PopulationBasedTraining:
    defaults = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 5,
        "hyperparam_mutations": {"rate": uniform(0.0, 1.0)},
        "seed": 0,
    }
    return PopulationBasedTraining(**{**defaults, **options})


def population(scheduler: PopulationBasedTraining, count: int = 8, **options: Any) -> Simulation:
    rng = random.Random(1)
    configs = [{"rate": rng.random()} for _ in range(count)]
    return Simulation(scheduler, configs, gain, **{"slots": count, "length": 40, **options})


def start(simulation: Simulation) -> list[Trial]:
    simulation.start_trials()
    return simulation.trials


def report(simulation: Simulation, trial: Trial, time: float, score: float) -> str:
    result = {"training_iteration": time, "score": score}
    action = simulation.scheduler.on_trial_result(simulation, trial, result)
    trial.update_last_result(result)
    if action == PAUSE:
        simulation.pause_trial(trial)
    return action


@pytest.mark.parametrize("synch", [False, True], ids=["asynchronous", "synchronous"])
class TestBothModes:
    def test_the_population_does_better_than_its_best_member_alone(self, synch: bool) -> None:
        configs = [{"rate": 0.02 * number} for number in range(1, 9)]  # all far from 0.5
        options: dict[str, Any] = {"slots": 8, "length": 60}
        alone = max(sum(gain(config, 0.0, 1) for _ in range(60)) for config in configs)
        simulation = Simulation(pbt(synch=synch), configs, gain, **options).run()
        assert max(simulation.state.values()) > alone
        assert simulation.scheduler._num_perturbations > 5  # type: ignore[attr-defined]

    def test_trials_take_turns_if_there_are_more_than_can_run(self, synch: bool) -> None:
        simulation = population(pbt(synch=synch), 9, slots=2)
        spread = 0
        while simulation.step():
            times = [simulation.iteration[trial.trial_id] for trial in simulation.get_live_trials()]
            spread = max(spread, max(times, default=0) - min(times, default=0))
        assert not simulation.get_live_trials()
        assert spread <= 10

    def test_sources_are_in_the_top_quantile_and_targets_in_the_bottom(self, synch: bool) -> None:
        scheduler = pbt(synch=synch, quantile_fraction=0.25)
        rng = random.Random(3)
        simulation = ExploitSimulation(
            scheduler, [{"rate": rng.random()} for _ in range(8)], gain, slots=8, length=50, seed=2
        )
        quantiles = scheduler._quantiles

        def spy() -> Any:
            lower, upper = quantiles()
            spied.append(({m.trial.trial_id for m in lower}, {m.trial.trial_id for m in upper}))
            return lower, upper

        spied: list[tuple[set[str], set[str]]] = []
        scheduler._quantiles = spy  # type: ignore[method-assign]
        seen = 0
        while simulation.step():
            exploits = [name for event, name in simulation.events if event == "exploit"]
            for name in exploits[seen:]:
                target, source = name.split("<")
                lower, upper = spied[-1]
                assert target in lower
                assert source in upper
                assert not lower & upper
            seen = len(exploits)
        assert seen > 5

    def test_mutations_stay_within_bounds(self, synch: bool) -> None:
        mutations = {"rate": uniform(0.2, 0.6), "size": [8, 16, 32], "nested": {"steps": lambda: 10}}
        configs = [{"rate": 0.2 + number / 25} for number in range(8)]
        simulation = Simulation(
            pbt(synch=synch, hyperparam_mutations=mutations), configs, gain, slots=4, length=60
        ).run()
        for trial in simulation.trials:
            assert 0.2 <= trial.config["rate"] <= 0.6
            assert trial.config["size"] in (8, 16, 32)
            assert isinstance(trial.config["nested"]["steps"], int)

    def test_controllers_that_copy_trials_themselves_get_the_same_decisions(self, synch: bool) -> None:
        configs = [{"rate": number / 8} for number in range(8)]
        options: dict[str, Any] = {"slots": 3, "length": 40}
        first = Simulation(pbt(synch=synch), [*map(dict, configs)], gain, **options).run()
        second = ExploitSimulation(pbt(synch=synch), [*map(dict, configs)], gain, **options).run()
        assert first.state == second.state
        assert first.events == [event for event in second.events if event[0] != "exploit"]

    def test_a_pickled_scheduler_continues_identically(self, synch: bool, tmp_path: Path) -> None:
        original = population(pbt(synch=synch, hyperparam_mutations={"rate": uniform(0, 1), "x": lambda: 3}))
        for _ in range(120):
            original.step()
        assert original.scheduler._num_perturbations  # type: ignore[attr-defined]
        copy = cloudpickle.loads(cloudpickle.dumps(original))
        original.scheduler.save(str(tmp_path / "state"))
        restored = cloudpickle.loads(cloudpickle.dumps(original))
        restored.scheduler = pbt(seed=99)
        restored.scheduler.restore(str(tmp_path / "state"))
        for trial in restored.trials:
            if not trial.is_finished():
                restored.scheduler.on_trial_add(restored, trial)
        for simulation in (original, copy, restored):
            simulation.run()
        assert original.state == copy.state == restored.state
        assert original.events == copy.events == restored.events

    def test_failed_trials_hold_up_nobody(self, synch: bool) -> None:
        simulation = population(pbt(synch=synch), 10, slots=4, seed=5)
        for number in range(2000):
            if not simulation.step():
                break
            if number % 37 == 20 and simulation.running:
                simulation.fail(simulation.running[-1])
        assert not simulation.get_live_trials()

    def test_diverged_trials_are_replaced(self, synch: bool) -> None:
        def diverging(config: dict[str, Any], state: float, iteration: int) -> float:
            return math.nan if config["rate"] > 0.9 else gain(config, state, iteration)

        configs = [{"rate": rate} for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.95)]
        scheduler = pbt(synch=synch, hyperparam_mutations={"rate": uniform(0.0, 0.8)})
        simulation = Simulation(scheduler, configs, diverging, slots=8, length=30).run()
        assert not any(math.isnan(state) for state in simulation.state.values())


def test_nothing_happens_before_the_interval_and_the_burn_in_period() -> None:
    simulation = population(pbt(perturbation_interval=5, burn_in_period=12), 4)
    trials = start(simulation)
    assert [report(simulation, trials[0], time, 1) for time in (1, 5, 11)] == [CONTINUE] * 3
    assert simulation.scheduler._members["0000"].score is None  # type: ignore[attr-defined]
    report(simulation, trials[0], 12, 1)
    assert simulation.scheduler._members["0000"].score == 1  # type: ignore[attr-defined]


def test_good_trials_are_saved_and_bad_ones_replaced() -> None:
    simulation = population(pbt(perturbation_interval=10), 5)
    trials = start(simulation)
    assert [report(simulation, trial, 10, 50 * i) for i, trial in enumerate(trials)] == [CONTINUE] * 5
    simulation.scheduler._num_checkpoints = 0  # type: ignore[attr-defined]
    assert report(simulation, trials[0], 15, -100) == CONTINUE, "the interval is not over"
    assert report(simulation, trials[0], 20, -100) == NOOP
    assert trials[0].status == Trial.PAUSED
    assert "@perturbed[rate=" in trials[0].experiment_tag
    assert trials[0].checkpoint in (trials[3].checkpoint, trials[4].checkpoint)
    start(simulation)
    assert report(simulation, trials[2], 20, 75) == CONTINUE, "it is in the middle"
    assert simulation.scheduler._num_checkpoints == 0  # type: ignore[attr-defined]
    assert report(simulation, trials[1], 20, 500) == CONTINUE
    assert simulation.scheduler.debug_string() == "PopulationBasedTraining: 1 checkpoints, 1 perturbs"


def test_a_trial_gives_way_to_waiting_ones() -> None:
    simulation = population(pbt(), 5, slots=4)
    trials = start(simulation)
    assert report(simulation, trials[1], 5, 100) == PAUSE
    assert simulation.scheduler.choose_trial_to_run(simulation) is trials[4]


@pytest.mark.parametrize("rates", [[0.1, 0.2, 0.4, 0.5], [0.5, 0.4, 0.2, 0.1]])
def test_bad_trials_are_replaced_whatever_the_order_in_which_trials_report(rates: list[float]) -> None:
    simulation = Simulation(pbt(), [{"rate": rate} for rate in rates], gain, slots=4, length=21).run()
    assert min(simulation.state.values()) > 21 * gain({"rate": 0.1}, 0.0, 1) + 2


def test_without_checkpoints_nobody_is_replaced() -> None:
    simulation = population(pbt(), 4)
    simulation._schedule_trial_save = lambda trial, result=None: None  # type: ignore[assignment, method-assign, return-value]
    for trial in start(simulation):
        report(simulation, trial, 5, 4 - int(trial.trial_id))
    assert simulation.scheduler._num_perturbations == 0  # type: ignore[attr-defined]
    assert {trial.status for trial in simulation.trials} == {Trial.RUNNING}


def test_a_quantile_of_zero_replaces_nobody() -> None:
    simulation = population(pbt(quantile_fraction=0)).run()
    assert simulation.scheduler.debug_string().endswith("0 checkpoints, 0 perturbs")


def test_a_synchronous_population_waits_for_its_last_member() -> None:
    simulation = population(pbt(synch=True, perturbation_interval=10), 5)
    trials = start(simulation)
    for number, trial in enumerate(trials[:-1]):
        assert report(simulation, trial, 10, number) == PAUSE
    assert simulation.scheduler.choose_trial_to_run(simulation) is None
    assert simulation.scheduler._num_perturbations == 0  # type: ignore[attr-defined]
    assert report(simulation, trials[-1], 10, 100) == PAUSE
    assert simulation.scheduler.debug_string().endswith("2 checkpoints, 2 perturbs")
    assert simulation.scheduler.choose_trial_to_run(simulation) is not None


def test_a_synchronous_population_goes_on_when_all_report_late() -> None:
    simulation = population(pbt(synch=True, perturbation_interval=5), 4)
    for number, trial in enumerate(start(simulation)):
        report(simulation, trial, 30, number)
    assert simulation.scheduler.choose_trial_to_run(simulation) is not None


def test_a_synchronous_population_does_not_wait_for_a_trial_that_ends() -> None:
    simulation = population(pbt(synch=True, perturbation_interval=10), 3)
    *others, last = start(simulation)
    for number, trial in enumerate(others):
        report(simulation, trial, 10, number)
    assert simulation.scheduler.choose_trial_to_run(simulation) is None
    simulation.stop_trial(last)
    assert simulation.scheduler.choose_trial_to_run(simulation) is not None


def test_a_missing_metric_is_an_error_unless_it_is_optional(caplog: pytest.LogCaptureFixture) -> None:
    simulation = population(pbt())
    trial = simulation.trials[0]
    with pytest.raises(
        RuntimeError, match=r"metric='score', but a trial reported only \['training_iteration'\]"
    ):
        simulation.scheduler.on_trial_result(simulation, trial, {"training_iteration": 1})
    with pytest.raises(RuntimeError, match=r"time_attr='training_iteration'.*require_attrs=False"):
        simulation.scheduler.on_trial_result(simulation, trial, {"score": 1})
    optional = population(pbt(require_attrs=False))
    for _ in range(3):
        result: dict[str, Any] = {"training_iteration": 1}
        assert optional.scheduler.on_trial_result(optional, optional.trials[0], result) == CONTINUE
    assert len(caplog.records) == 1


def test_search_algorithms_are_refused() -> None:
    from skate.tune.search.search_generator import SearchGenerator

    simulation = population(pbt(), 0)
    simulation.search_alg = SearchGenerator.__new__(SearchGenerator)
    with pytest.raises(ValueError, match="remove search_alg"):
        simulation.add({"rate": 1.0})


def test_hyperparameters_that_trials_lack_are_sampled() -> None:
    simulation = Simulation(pbt(hyperparam_mutations={"rate": uniform(0, 1), "n": {"m": [3]}}), [{}], gain)
    (trial,) = simulation.trials
    assert 0 <= trial.config["rate"] <= 1
    assert trial.evaluated_params == {"rate": trial.config["rate"], "n/m": 3}


def test_few_kept_checkpoints_are_warned_of_once() -> None:
    scheduler = pbt()
    simulation = population(scheduler, 0)
    kept: Any = SimpleNamespace(num_to_keep=2)
    with pytest.warns(UserWarning, match="num_to_keep=2"):
        scheduler.on_trial_add(simulation, Trial("t", checkpoint_config=kept))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.on_trial_add(simulation, Trial("t", checkpoint_config=kept))


def test_a_custom_function_is_enough() -> None:
    def explore(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "rate": 0.5}

    scheduler = pbt(hyperparam_mutations=None, custom_explore_fn=explore)
    simulation = population(scheduler).run()
    assert sum(trial.config["rate"] == 0.5 for trial in simulation.trials) >= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile_fraction": 0.6}, "quantile_fraction must be between 0 and 0.5, not 0.6"),
        ({"perturbation_interval": 0}, "perturbation_interval must be greater than 0, not 0"),
        ({"resample_probability": 2}, "resample_probability must be"),
        ({"perturbation_factors": ()}, "perturbation_factors must have"),
        ({"mode": "mid"}, "mode must be"),
    ],
)
def test_bad_arguments_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pbt(**options)


def test_there_must_be_something_to_mutate() -> None:
    with pytest.raises(TuneError, match="nothing to mutate"):
        pbt(hyperparam_mutations={})


def test_a_seed_fixes_everything() -> None:
    states = [population(pbt(seed=seed), seed=1).run().state for seed in (1, 1, 2)]
    assert states[0] == states[1] != states[2]


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(1, 6), st.floats(0, 0.5), st.booleans(), st.integers(0, 100))
def test_any_population_trains_to_its_end(
    count: int, slots: int, quantile: float, synch: bool, seed: int
) -> None:
    scheduler = pbt(quantile_fraction=quantile, synch=synch, seed=seed, perturbation_interval=3)
    simulation = population(scheduler, count, slots=slots, length=20, seed=seed).run()
    assert set(simulation.iteration.values()) == {20}


class TestPolicies:
    def run(self, folder: Path, synch: bool = False) -> ExploitSimulation:
        configs = [{"rate": 0.1 * number} for number in range(6)]
        simulation = ExploitSimulation(pbt(synch=synch), configs, gain, slots=6, length=40)
        simulation.experiment_path = str(folder)
        simulation.run()
        return simulation

    def test_every_copy_is_logged(self, tmp_path: Path) -> None:
        simulation = self.run(tmp_path)
        rows = [json.loads(line) for line in (tmp_path / "pbt_global.txt").read_text().splitlines()]
        assert len(rows) == simulation.scheduler._num_perturbations  # type: ignore[attr-defined]
        for target, source, at, source_at, old, new in rows:
            assert target != source
            assert at % 5 == source_at % 5 == 0
            assert old.keys() == new.keys() == {"rate"}

    def test_the_file_of_a_trial_leads_to_its_configuration(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        files = sorted(tmp_path.glob("pbt_policy_*.txt"))
        assert len(files) > 2
        for file in files:
            initial, changes = read_schedule(file)
            assert initial is not None
            iterations = [iteration for iteration, _ in changes]
            assert iterations == sorted(iterations)

    @pytest.mark.parametrize("synch", [False, True])
    def test_a_replay_trains_as_the_trial_did(self, tmp_path: Path, synch: bool) -> None:
        original = self.run(tmp_path, synch)
        for file in tmp_path.glob("pbt_policy_*.txt"):
            name = file.stem.removeprefix("pbt_policy_")
            replay = ExploitSimulation(PopulationBasedTrainingReplay(file), [{}], gain, length=40).run()
            assert replay.state["0000"] == pytest.approx(original.state[name])
            assert replay.scheduler.debug_string().startswith("PopulationBasedTraining replay: Step 3")

    def test_a_replay_survives_pickling(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        file = max(tmp_path.glob("pbt_policy_*.txt"), key=lambda file: file.stat().st_size)
        original = Simulation(PopulationBasedTrainingReplay(file), [{}], gain, length=40)
        for _ in range(12):
            original.step()
        copy = cloudpickle.loads(cloudpickle.dumps(original))
        assert original.run().state == copy.run().state

    def test_a_replay_takes_one_trial(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        file = next(tmp_path.glob("pbt_policy_*.txt"))
        with pytest.raises(ValueError, match="num_samples=1"):
            Simulation(PopulationBasedTrainingReplay(file), [{}, {}], gain)

    def test_a_replay_without_steps_needs_a_configuration(self, tmp_path: Path) -> None:
        file = tmp_path / "empty.txt"
        file.touch()
        assert Simulation(PopulationBasedTrainingReplay(file), [{"rate": 1}], gain).trials[0].config == {
            "rate": 1
        }
        with pytest.raises(ValueError, match="pass param_space"):
            Simulation(PopulationBasedTrainingReplay(file), [{}], gain)

    def test_a_replay_waits_for_a_checkpoint(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        replay = Simulation(
            PopulationBasedTrainingReplay(next(tmp_path.glob("pbt_policy_*.txt"))), [{}], gain, length=40
        )
        replay._schedule_trial_save = lambda trial, result=None: None  # type: ignore[assignment, method-assign, return-value]
        for _ in range(30):
            replay.step()
        assert replay.scheduler._num_perturbations == 0  # type: ignore[attr-defined]

    def test_files_that_are_no_policies_are_errors(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no policy file"):
            PopulationBasedTrainingReplay(tmp_path / "absent")
        file = tmp_path / "wrong"
        file.write_text("[1, 2]\n")
        with pytest.raises(ValueError, match="line 1 is"):
            PopulationBasedTrainingReplay(str(file))

    def test_values_that_json_does_not_know_are_written(self, tmp_path: Path) -> None:
        import numpy as np

        from skate.tune.schedulers._policy_log import PolicyStep, append_step

        append_step(
            tmp_path, "a", "b", PolicyStep("0", "1", 1, 2, {"x": np.float32(0.5)}, {"y": Saved(1, 2)})
        )
        ((iteration, new),) = read_schedule(tmp_path / "pbt_policy_a.txt").changes
        assert (iteration, new) == (2, {"y": "Saved(state=1, iteration=2)"})
