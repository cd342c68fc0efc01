"""Search with BOHB."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from skate.tune.search import ConcurrencyLimiter
from skate.tune.search.bohb import TuneBOHB
from skate.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qrandint,
    quniform,
    randint,
    randn,
    uniform,
)
from tests.tune.search.contract import SearcherContract, loss

pytestmark = pytest.mark.filterwarnings("ignore")  # of HpBandSter, about the libraries that it uses
pytest.importorskip("hpbandster", exc_type=ImportError)
ConfigSpace = pytest.importorskip("ConfigSpace", exc_type=ImportError)

SPACE = {"x": uniform(-5, 5), "sub": {"y": uniform(-5, 5), "constant": 1}}


class TestContract(SearcherContract):
    ADDS_POINTS: ClassVar = False
    BAD_SPACE: ClassVar = {"sub": {"bad": randn()}}

    def build(self, seed: int = 0, **options: Any) -> TuneBOHB:
        # With the default settings of HpBandSter, the estimators of so few points in two dimensions are so narrow
        # that the search stays near the first good points, and random search is better.
        config = {"min_points_in_model": 8, "bandwidth_factor": 10, "num_samples": 16}
        return TuneBOHB(seed=seed, bohb_config=config, **options)


class TestContractWithBudgets(TestContract):
    def step(self, searcher: Any, name: str, sign: float = 1.0) -> dict[str, Any]:
        config: dict[str, Any] = searcher.suggest(name)
        result = {"loss": sign * loss(config), "training_iteration": 3, "hyperband_info": {"budget": 3}}
        searcher.on_trial_result(name, result)
        searcher.on_trial_complete(name, result)
        return config


def test_all_kinds_of_domains_are_suggested() -> None:
    searcher = TuneBOHB(bohb_config={"num_samples": 8}, metric="loss", mode="min", seed=0)
    searcher.set_search_properties(
        None,
        None,
        {
            "a": choice(["a", None, 3]),
            "b": [randint(0, 3), 7],
            "c": qrandint(1, 10, 3),
            "d": lograndint(1, 5),
            "e": quniform(0, 1, 0.5),
            "f": loguniform(1e-4, 1e-2),
        },
    )
    found: list[Any] = []
    for number in range(60):
        found.append(searcher.suggest(str(number)))
        searcher.on_trial_complete(str(number), {"loss": float(number % 7), "training_iteration": 1})
    assert {config["a"] for config in found} == {"a", None, 3}
    assert {config["b"][0] for config in found} == {0, 1, 2}
    assert {config["c"] for config in found} == {3, 6, 9}
    assert {config["d"] for config in found} == {1, 2, 3, 4}
    assert {config["e"] for config in found} == {0, 0.5, 1}
    assert {type(config["d"]) for config in found} == {int}


def test_results_are_told_once_per_budget() -> None:
    searcher = TuneBOHB(metric="loss", mode="max", seed=0)
    searcher.set_search_properties(None, None, SPACE)
    searcher.suggest("a")
    searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    assert searcher.bohber.losses == {}
    searcher.on_trial_result("a", {"loss": 2.0, "hyperband_info": {"budget": 3}})
    searcher.on_trial_complete("a", {"loss": 2.0, "hyperband_info": {"budget": 3}})
    searcher.suggest("b")
    searcher.on_trial_result("b", {"loss": math.nan, "hyperband_info": {"budget": 3}})
    searcher.on_trial_complete("b", {"loss": math.nan})
    assert searcher.bohber.losses == {3.0: [-2.0, math.inf]}


def test_paused_trials_do_not_count_as_running() -> None:
    searcher = TuneBOHB(metric="loss", mode="min", max_concurrent=1, seed=0)
    searcher.set_search_properties(None, None, SPACE)
    assert searcher.suggest("a")
    assert searcher.suggest("b") is None
    searcher.on_pause("a")
    assert searcher.suggest("b")
    searcher.on_trial_complete("b", {"loss": 1.0})
    searcher.on_unpause("a")
    assert searcher.suggest("c") is None
    assert set(searcher.trial_to_params) == {"a"}


def test_a_limiter_sets_the_number_of_running_trials() -> None:
    searcher = TuneBOHB(metric="loss", mode="min", seed=0)
    limiter = ConcurrencyLimiter(searcher, max_concurrent=1)
    limiter.set_search_properties(None, None, SPACE)
    assert limiter.suggest("a")
    assert limiter.suggest("b") is None
    limiter.on_pause("a")
    assert limiter.suggest("b")
    limiter.on_unpause("a")
    assert searcher.running == {"a", "b"}


def test_a_configuration_space_is_accepted() -> None:
    space = ConfigSpace.ConfigurationSpace()
    space.add(ConfigSpace.UniformFloatHyperparameter("n/x", lower=0, upper=1))
    searcher = TuneBOHB(space, metric="loss", mode="min", seed=0, points_to_evaluate=[{"n": {"x": 0.5}}])
    assert searcher.suggest("a") == {"n": {"x": 0.5}}
    config: Any = searcher.suggest("b")
    assert 0 <= config["n"]["x"] <= 1
