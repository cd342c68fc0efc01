"""Search with Optuna."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from skate.tune.search import create_searcher
from skate.tune.search.optuna import OptunaSearch
from skate.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    uniform,
)
from tests.tune.search.contract import SearcherContract

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestContract(SearcherContract):
    BAD_SPACE: ClassVar = {"sub": {"bad": randn()}}

    def build(self, seed: int = 0, **options: Any) -> OptunaSearch:
        return OptunaSearch(seed=seed, **options)


def test_a_searcher_that_wraps_this_one_can_look_up_its_trials() -> None:
    searcher = OptunaSearch({"x": uniform(0, 1)}, "loss", "min", seed=0)
    searcher.suggest("a")
    assert "a" in searcher._ot_trials
    assert "b" not in searcher._ot_trials


def states(searcher: OptunaSearch) -> list[str]:
    return [trial.state.name for trial in searcher._study.trials]


def test_all_kinds_of_domains_are_converted() -> None:
    kinds = optuna.distributions
    assert OptunaSearch.convert_search_space(
        {
            "a": choice([2, "x", None]),
            "b": {"x": qrandint(1, 10, 3), "y": 4, "z": loguniform(1e-4, 1e-2)},
            "c": [randint(0, 5), quniform(0, 1, 0.25)],
            "d": lograndint(1, 10),
            "e": qloguniform(2, 8, 2),
            "f": qlograndint(2, 20, 2),
            "g": uniform(0, 1),
        }
    ) == {
        "a": kinds.CategoricalDistribution([2, "x", None]),
        "b/x": kinds.IntDistribution(3, 9, step=3),
        "b/z": kinds.FloatDistribution(1e-4, 1e-2, log=True),
        "c/0": kinds.IntDistribution(0, 4),
        "c/1": kinds.FloatDistribution(0, 1, step=0.25),
        "d": kinds.IntDistribution(1, 9, log=True),
        "e": kinds.FloatDistribution(2, 8, log=True),
        "f": kinds.IntDistribution(2, 20, log=True),
        "g": kinds.FloatDistribution(0, 1),
    }


def test_quantized_values_and_lists_are_suggested() -> None:
    searcher = OptunaSearch(metric="loss", mode="min", seed=0)
    space = {"a": [7, qloguniform(2, 8, 2)], "b": qlograndint(2, 20, 2), "c": quniform(3.2, 5.4, 0.2)}
    searcher.set_search_properties(None, None, space)
    for number in range(30):
        config: Any = searcher.suggest(str(number))
        assert config["a"][0] == 7
        assert config["a"][1] in (2, 4, 6, 8)
        assert config["b"] % 2 == 0
        assert type(config["b"]) is int
        assert 3.2 <= config["c"] <= 5.4


def test_a_space_of_distributions_is_accepted() -> None:
    space = {
        "a": optuna.distributions.FloatDistribution(6, 8),
        "b": {"c": optuna.distributions.IntDistribution(1, 3)},
    }
    searcher = OptunaSearch(space, metric="loss", mode="min", seed=0)
    assert searcher.set_search_properties("loss", "min", {"d": uniform(0, 1)}) is False
    config: Any = searcher.suggest("a")
    assert 6 <= config["a"] <= 8
    assert config["b"]["c"] in (1, 2, 3)


def test_metric_and_mode_of_the_experiment_complete_a_space() -> None:
    searcher = OptunaSearch({"a": optuna.distributions.FloatDistribution(6, 8)})
    assert searcher.set_search_properties("loss", "max", {}) is False
    assert isinstance(searcher.suggest("a"), dict)
    assert searcher.metric == "loss"


def test_a_space_of_tune_is_converted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    searcher = OptunaSearch({"a": uniform(0, 1)}, metric="loss", mode="min")
    assert "domains of Tune" in caplog.text
    assert isinstance(searcher.suggest("a"), dict)


def test_a_function_defines_the_space() -> None:
    def define(trial: Any) -> dict[str, Any]:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            trial.suggest_float("sub/x", 0, 1)
        else:
            trial.suggest_int("n", 1, 3)
        return {"constant": 5}

    searcher = OptunaSearch(
        define, metric="loss", mode="min", seed=0, points_to_evaluate=[{"kind": "a", "sub/x": 0.25}]
    )
    assert searcher.suggest("p") == {"kind": "a", "sub": {"x": 0.25}, "constant": 5}
    searcher.on_trial_complete("p", {"loss": 1.0})
    for number in range(10):
        config: Any = searcher.suggest(str(number))
        assert config["constant"] == 5
        assert ("sub" in config) == (config["kind"] == "a")
        searcher.on_trial_complete(str(number), {"loss": float(number)})
    loaded = cloudpickle.loads(cloudpickle.dumps(searcher))
    assert loaded.suggest("z") == searcher.suggest("z")
    with pytest.raises(TypeError, match="not to a function"):
        searcher.add_evaluated_point({"kind": "a"}, 1.0)
    with pytest.raises(TypeError, match="evaluated_rewards need a space of distributions"):
        OptunaSearch(define, points_to_evaluate=[{"kind": "a"}], evaluated_rewards=[1.0])


@pytest.mark.parametrize("returned", [[1], {1: 2}, 3])
def test_a_function_returns_a_dict_or_nothing(returned: Any) -> None:
    searcher = OptunaSearch(lambda trial: returned, metric="loss", mode="min")
    with pytest.raises(TypeError, match="must return None or a dict"):
        searcher.suggest("a")


def test_a_function_that_fails_leaves_no_running_trial() -> None:
    def define(trial: Any) -> None:
        raise KeyError("oops")

    searcher = OptunaSearch(define, metric="loss", mode="min")
    with pytest.raises(KeyError, match="oops"):
        searcher.suggest("a")
    assert states(searcher) == ["FAIL"]


def test_several_objectives_are_optimized() -> None:
    searcher = OptunaSearch(metric=["a", "b"], mode=["min", "max"], seed=0)
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    for number in range(15):
        config: Any = searcher.suggest(str(number))
        searcher.on_trial_result(str(number), {"a": 1, "b": 2, "training_iteration": 1})
        searcher.on_trial_complete(str(number), {"a": config["x"], "b": config["x"] ** 2})
    searcher.suggest("nan")
    searcher.on_trial_complete("nan", {"a": 1.0, "b": math.nan})
    assert [direction.name for direction in searcher._study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert states(searcher) == ["COMPLETE"] * 15 + ["FAIL"]
    assert searcher._study.trials[3].values == [
        searcher._study.trials[3].params["x"],
        pytest.approx(searcher._study.trials[3].params["x"] ** 2),
    ]
    searcher.add_evaluated_point({"x": 0.5}, [1.0, 2.0])


def test_the_ends_of_trials_have_states_in_the_study() -> None:
    searcher = OptunaSearch({"x": optuna.distributions.FloatDistribution(0, 1)}, metric="loss", mode="min")
    for name, result, error in [
        ("complete", {"loss": 1.0}, False),
        ("failed", None, True),
        ("failed late", {"loss": 1.0}, True),
        ("pruned", None, False),
        ("nan", {"loss": math.nan}, False),
        ("missing", {"accuracy": 1.0}, False),
    ]:
        searcher.suggest(name)
        searcher.on_trial_complete(name, result, error=error)
    assert states(searcher) == ["COMPLETE", "FAIL", "FAIL", "PRUNED", "FAIL", "FAIL"]


def test_intermediate_values_are_recorded() -> None:
    searcher = OptunaSearch({"x": optuna.distributions.FloatDistribution(0, 1)}, metric="loss", mode="min")
    searcher.suggest("a")
    for step, value in enumerate([3.0, math.nan, 2.0, None]):
        searcher.on_trial_result("a", {"loss": value, "training_iteration": step})
    searcher.on_trial_result("unknown", {"loss": 1.0, "training_iteration": 1})
    assert searcher._study.trials[0].intermediate_values == {0: 3.0, 2: 2.0}


def test_evaluated_rewards_are_told_and_their_points_are_not_run() -> None:
    searcher = OptunaSearch(
        metric="loss",
        mode="min",
        points_to_evaluate=[{"x": 0.25}, {"x": 0.5}],
        evaluated_rewards=[1.0, math.nan],
    )
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    assert searcher.suggest("a") != {"x": 0.25}
    assert states(searcher) == ["COMPLETE", "FAIL", "RUNNING"]
    with pytest.raises(ValueError, match="a value for each of the 1 points_to_evaluate, got 2"):
        OptunaSearch(points_to_evaluate=[{"x": 1}], evaluated_rewards=[1, 2])
    with pytest.raises(TypeError, match="evaluated_rewards must be a list"):
        OptunaSearch(points_to_evaluate=[{"x": 1}], evaluated_rewards=1)  # type: ignore[arg-type]


def test_points_may_lack_parameters() -> None:
    searcher = OptunaSearch(metric="loss", mode="min", points_to_evaluate=[{"x": 0.25}])
    searcher.set_search_properties(None, None, {"x": uniform(0, 1), "y": uniform(0, 1)})
    config: Any = searcher.suggest("a")
    assert config["x"] == 0.25
    assert 0 <= config["y"] <= 1


def test_a_study_in_a_storage_is_continued(tmp_path: Path) -> None:
    def build() -> OptunaSearch:
        storage = optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
        )
        space = {"x": optuna.distributions.FloatDistribution(0, 1)}
        return OptunaSearch(space, metric="loss", mode="min", storage=storage, study_name="mine")

    first = build()
    first.suggest("a")
    first.on_trial_complete("a", {"loss": 1.0})
    second = build()
    second.suggest("b")
    assert states(second) == ["COMPLETE", "RUNNING"]
    assert second._study.study_name == "mine"


def test_any_sampler_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    sampler = optuna.samplers.RandomSampler(seed=1)
    searcher = OptunaSearch(metric="loss", mode="min", sampler=sampler, seed=3)
    assert "seed is ignored" in caplog.text
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    searcher.suggest("a")
    assert searcher._study.sampler is sampler
    with pytest.raises(TypeError, match="BaseSampler, got str"):
        OptunaSearch(sampler="TPE")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="BaseStorage, got str"):
        OptunaSearch(storage="sqlite://")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list of parameters"):
        OptunaSearch([("x", 1)])  # type: ignore[arg-type]


def test_it_is_created_by_name() -> None:
    assert isinstance(create_searcher("optuna", metric="loss", mode="min"), OptunaSearch)
