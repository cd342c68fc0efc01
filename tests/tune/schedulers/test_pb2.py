"""Population based bandits on a toy problem."""

from __future__ import annotations

import math
import random
import statistics
import sys
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn")

import numpy as np

from skate.tune.error import TuneError
from skate.tune.schedulers._gaussian_process import Step, TimeVaryingKernel, suggest
from skate.tune.schedulers.pb2 import PB2
from tests.tune.schedulers.simulation import Simulation


def gain(config: dict[str, Any], state: float, iteration: int) -> float:
    """Training that gains the most with a rate of 70 and a decay of 0.2."""
    return state + 1 - 8 * (float(config["rate"]) / 100 - 0.7) ** 2 - 8 * (float(config["decay"]) - 0.2) ** 2


BOUNDS: dict[str, Any] = {"rate": [0.0, 100.0], "decay": [0.0, 1.0]}


def pb2(**options: Any) -> PB2:
    defaults = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 3,
        "hyperparam_bounds": BOUNDS,
        "seed": 0,
    }
    return PB2(**{**defaults, **options})


class RandomChoice(PB2):
    """Copies like PB2, but chooses hyperparameters at random."""

    def _explore(self, member: Any, source: Any) -> Any:
        self._steps.clear()
        return super()._explore(member, source)


def population(scheduler: PB2, seed: int = 0, count: int = 4, length: int = 31) -> Simulation:
    return Simulation(scheduler, [{} for _ in range(count)], gain, slots=count, length=length, seed=seed)


def test_it_beats_random_choices() -> None:
    def mean_best(scheduler: type[PB2]) -> float:
        options: dict[str, Any] = {
            "time_attr": "training_iteration",
            "metric": "score",
            "mode": "max",
            "perturbation_interval": 2,
            "hyperparam_bounds": BOUNDS,
            "quantile_fraction": 0.34,
        }
        runs = [population(scheduler(**options, seed=seed), seed, 6, 40).run() for seed in range(2)]
        return statistics.mean(max(run.state.values()) for run in runs)

    assert mean_best(PB2) > mean_best(RandomChoice) + 2


def test_hyperparameters_stay_within_their_bounds() -> None:
    simulation = population(pb2())
    while simulation.step():
        for trial in simulation.trials:
            assert 0 <= trial.config["rate"] <= 100
            assert 0 <= trial.config["decay"] <= 1
    assert simulation.scheduler._num_perturbations > 5  # type: ignore[attr-defined]
    assert simulation.scheduler.debug_string().startswith("PB2: ")


def test_nested_bounds_integers_and_constants_are_kept() -> None:
    def nested(config: dict[str, Any], state: float, iteration: int) -> float:
        return state + config["a"]["size"] + config["a"]["width"]

    scheduler = pb2(hyperparam_bounds={"a": {"size": [4, 9.5], "width": (2.0, 2.0)}})
    configs = [{"a": {"size": size, "other": "x"}} for size in (4, 5, 6, 7)]
    simulation = Simulation(scheduler, configs, nested, slots=4, length=16).run()
    for trial in simulation.trials:
        assert trial.config["a"]["width"] == 2.0
        assert trial.config["a"]["other"] == "x"
        assert trial.config["a"]["size"] in range(4, 10)
        assert isinstance(trial.config["a"]["size"], int)
        assert trial.evaluated_params == {"a/width": 2.0}


@pytest.mark.parametrize("synch", [False, True])
def test_a_pickled_scheduler_continues_identically(synch: bool) -> None:
    original = population(pb2(synch=synch), length=22)
    for _ in range(40):
        original.step()
    assert original.scheduler._steps  # type: ignore[attr-defined]
    copy = cloudpickle.loads(cloudpickle.dumps(original))
    assert original.run().state == copy.run().state


def test_a_custom_function_has_the_last_word() -> None:
    scheduler = pb2(custom_explore_fn=lambda config: {**config, "decay": 0.25})
    simulation = population(scheduler, length=10).run()
    assert any(trial.config["decay"] == 0.25 for trial in simulation.trials)
    broken = population(pb2(custom_explore_fn=lambda config: None))
    with pytest.raises(TypeError, match="custom_explore_fn must return"):
        broken.run()


def test_scores_that_are_not_finite_do_not_reach_the_model() -> None:
    def diverging(config: dict[str, Any], state: float, iteration: int) -> float:
        return float("nan") if config["rate"] > 80 else gain(config, state, iteration)

    rng = random.Random(0)
    configs = [{"rate": rng.uniform(0, 100), "decay": 0.5} for _ in range(5)] + [{"rate": 99.0, "decay": 0.5}]
    simulation = Simulation(pb2(), configs, diverging, slots=6, length=31, seed=1).run()
    assert all(np.isfinite(step.gain) for step in simulation.scheduler._steps)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"a": [1]}, r"hyperparam_bounds\['a'\] must be \[low, high\], not \[1\]"),
        ({"a": {"b": 3}}, r"hyperparam_bounds\['a/b'\] must be"),
        ({"a": [2, 1]}, "with low <= high, not"),
    ],
)
def test_bad_bounds_are_errors(bounds: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pb2(hyperparam_bounds=bounds)


def test_there_must_be_bounds() -> None:
    with pytest.raises(TuneError, match="pass hyperparam_bounds"):
        pb2(hyperparam_bounds={})


def test_without_scikit_learn_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skate.air._optional._is_installed", lambda module: module != "sklearn")
    with pytest.raises(ImportError, match="PB2 needs scikit-learn: pip install scikit-learn"):
        pb2()


def test_the_module_loads_scikit_learn_only_when_it_is_used() -> None:
    import subprocess

    code = "import sys, skate.tune.schedulers.pb2; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


class TestModel:
    def test_the_gradient_of_the_kernel_is_that_of_differences(self) -> None:
        points = np.random.default_rng(0).random((6, 4))
        kernel = TimeVaryingKernel(0.3, 0.4, 0.7)
        _, gradient = kernel(points, eval_gradient=True)
        for index in range(len(kernel.theta)):
            shift = np.zeros(len(kernel.theta))
            shift[index] = 1e-6
            above = kernel.clone_with_theta(kernel.theta + shift)(points)
            below = kernel.clone_with_theta(kernel.theta - shift)(points)
            assert np.allclose(gradient[..., index], (above - below) / 2e-6, atol=1e-6)

    def test_the_correlation_decays_with_time_and_distance(self) -> None:
        kernel = TimeVaryingKernel()
        points = np.array([[0.0, 0.5, 0.5], [1.0, 0.5, 0.5], [0.0, 0.9, 0.5], [0.0, 0.5, 0.9]])
        same, *others = kernel(points[:1], points)[0]
        assert same == 1 > max(others)

    def test_it_finds_the_best_value_of_a_clear_function(self) -> None:
        steps = [Step(1.0, 0.0, (x / 20,), -((x / 20 - 0.3) ** 2)) for x in range(21)]
        (chosen,) = suggest(steps, [], 1.0, 0.0, np.random.default_rng(0))
        assert chosen == pytest.approx(0.3, abs=0.1)

    def test_trials_that_have_just_started_are_avoided(self) -> None:
        # A function with short waves, of which nothing is known above 0.5.
        steps = [Step(1.0, 0.0, (x / 40,), math.sin(x / 2)) for x in range(20)]
        (first,) = suggest(steps, [], 1.0, 0.0, np.random.default_rng(0))
        (second,) = suggest(steps, [(first,)], 1.0, 0.0, np.random.default_rng(0))
        assert abs(first - second) > 0.1

    @settings(max_examples=15)
    @given(
        st.lists(
            st.tuples(st.floats(0, 1e4), st.floats(-1e6, 1e6), st.floats(0, 1), st.floats(-1e6, 1e6)),
            min_size=1,
            max_size=8,
        ),
        st.lists(st.tuples(st.floats(0, 1)), max_size=3),
    )
    def test_any_data_gives_a_point_in_the_unit_interval(self, rows: Any, pending: Any) -> None:
        steps = [Step(time, score, (value,), gain) for time, score, value, gain in rows]
        (chosen,) = suggest(steps, pending, rows[-1][0], rows[-1][1], np.random.default_rng(0))
        assert 0 <= chosen <= 1
