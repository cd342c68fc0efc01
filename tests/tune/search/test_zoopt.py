"""Search with ZOOpt."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from skate.tune.search.sample import choice, loguniform, qrandint, quniform, randint, uniform
from skate.tune.search.zoopt import ZOOptSearch
from tests.tune.search.contract import SearcherContract

pytestmark = pytest.mark.filterwarnings("ignore")  # of ZOOpt, about the libraries that it uses
zoopt = pytest.importorskip("zoopt", exc_type=ImportError)


class TestContract(SearcherContract):
    TRIALS = 60
    ADDS_POINTS: ClassVar = False
    BAD_SPACE: ClassVar = {"sub": {"bad": loguniform(1, 2)}}

    def build(self, seed: int = 0, **options: Any) -> ZOOptSearch:
        return ZOOptSearch(budget=60, seed=seed, **options)


def test_all_kinds_of_domains_are_suggested() -> None:
    searcher = ZOOptSearch(budget=40, metric="loss", mode="min", seed=0)
    space = {
        "a": choice(["a", None, 3]),
        "b": [randint(0, 3), 7],
        "c": qrandint(1, 10, 3),
        "e": quniform(0, 1, 0.5),
    }
    searcher.set_search_properties(None, None, space)
    for number in range(30):
        config: Any = searcher.suggest(str(number))
        if config == searcher.FINISHED:
            break
        assert config["a"] in ("a", None, 3)
        assert config["b"][0] in (0, 1, 2)
        assert config["c"] in (3, 6, 9)
        assert config["e"] in (0, 0.5, 1)
        searcher.on_trial_complete(str(number), {"loss": float(number)})
    assert number > 5


def test_a_space_that_is_fully_explored_ends_the_search() -> None:
    searcher = ZOOptSearch(budget=40, metric="loss", mode="min", seed=0)
    searcher.set_search_properties(None, None, {"a": choice([1, 2]), "b": choice([1, 2])})
    for number in range(40):
        if searcher.suggest(str(number)) == searcher.FINISHED:
            break
        searcher.on_trial_complete(str(number), {"loss": float(number)})
    assert number < 39


def test_parallel_trials_wait_for_the_first_results() -> None:
    searcher = ZOOptSearch(budget=20, parallel_num=2, metric="loss", mode="min", seed=0)
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    running: list[str] = []
    for number in range(100):
        if searcher.suggest(str(number)) is None:
            break
        running.append(str(number))
    assert 1 < len(running) < 20
    for trial_id in running:
        searcher.on_trial_complete(trial_id, {"loss": float(trial_id)})
    assert isinstance(searcher.suggest("next"), dict)


def test_a_search_whose_trials_all_fail_goes_on() -> None:
    searcher = ZOOptSearch(budget=20, metric="loss", mode="min", seed=0)
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    for number in range(30):
        assert isinstance(searcher.suggest(str(number)), dict)
        searcher.on_trial_complete(str(number), None, error=True)


def test_dimensions_of_zoopt_are_accepted() -> None:
    dimensions = {
        "x": (zoopt.ValueType.CONTINUOUS, [0, 1], 1e-6),
        "n/y": (zoopt.ValueType.DISCRETE, [1, 3], True),
    }
    searcher = ZOOptSearch(budget=20, dim_dict=dimensions, metric="loss", mode="min")
    config: Any = searcher.suggest("a")
    assert 0 <= config["x"] <= 1
    assert config["n"]["y"] in (1, 2, 3)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="needs a budget"):
        ZOOptSearch()
    with pytest.raises(ValueError, match="no algorithm 'racos'"):
        ZOOptSearch("racos", budget=10)
