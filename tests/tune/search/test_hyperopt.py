"""Search with HyperOpt."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from skate.tune.search.hyperopt import HyperOptSearch
from skate.tune.search.sample import (
    Float,
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    uniform,
)
from tests.tune.search.contract import SearcherContract

pytestmark = pytest.mark.filterwarnings("ignore")  # of HyperOpt, about the libraries that it uses
hyperopt = pytest.importorskip("hyperopt", exc_type=ImportError)


class TestContract(SearcherContract):
    BAD_SPACE: ClassVar = {"sub": {"bad": Float(0, 1).normal()}}

    def build(self, seed: int = 0, **options: Any) -> HyperOptSearch:
        return HyperOptSearch(random_state_seed=seed, n_initial_points=5, **options)


def configs(space: dict[str, Any], count: int = 60, **options: Any) -> list[Any]:
    searcher = HyperOptSearch(metric="loss", mode="min", random_state_seed=0, n_initial_points=200, **options)
    searcher.set_search_properties(None, None, space)
    return [searcher.suggest(str(number)) for number in range(count)]


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (choice(["a", None, 3]), {"a", None, 3}),
        (randint(0, 3), {0, 1, 2}),
        (qrandint(1, 10, 3), {3, 6, 9}),
        (lograndint(1, 4), {1, 2, 3}),
        (qlograndint(2, 6, 2), {2, 4, 6}),
        (quniform(0, 1, 0.5), {0, 0.5, 1}),
        (qloguniform(2, 8, 2), {2, 4, 6, 8}),
    ],
)
def test_every_value_of_a_discrete_domain_is_suggested(domain: Any, expected: set[Any]) -> None:
    found = [config["a"]["b"] for config in configs({"a": {"b": domain}})]
    assert set(found) == expected
    assert {type(value) for value in found} == {type(domain.cast(value)) for value in expected}


def test_continuous_domains_are_suggested() -> None:
    space = {
        "a": [uniform(-1, 0), 7],
        "b": loguniform(1e-4, 1e-2),
        "c": randn(10, 1),
        "d": qrandn(10, 1, 0.5),
    }
    for config in configs(space, 20):
        assert -1 <= config["a"][0] <= 0
        assert config["a"][1] == 7
        assert 1e-4 <= config["b"] <= 1e-2
        assert 0 < config["c"] < 20
        assert config["d"] * 2 == round(config["d"] * 2)


def test_values_of_choices_may_contain_domains_and_containers() -> None:
    space = {
        "a": choice(
            [{"kind": "x", "lr": uniform(0, 1)}, {"kind": "y"}, uniform(5, 6), [1, uniform(8, 9)], [1, 2]]
        )
    }
    found = [config["a"] for config in configs(space)]
    kinds = {type(value) for value in found}
    assert kinds >= {dict, float}
    for value in found:
        if isinstance(value, dict):
            assert ("lr" in value) == (value["kind"] == "x")
        elif isinstance(value, float):
            assert 5 <= value <= 6
    assert [1, 2] in found


def test_points_name_categories_by_their_value() -> None:
    space = {"a": choice(["x", "y", {"k": uniform(0, 1)}]), "b": uniform(0, 1)}
    (config,) = configs(space, 1, points_to_evaluate=[{"a": "y", "b": 0.5}])
    assert config == {"a": "y", "b": 0.5}
    with pytest.raises(
        ValueError, match=r"the value 'z' for 'a', which is not one of the constants \['x', 'y'\]"
    ):
        configs(space, 1, points_to_evaluate=[{"a": "z", "b": 0.5}])
    with pytest.raises(ValueError, match=r"\['b'\] are missing"):
        configs(space, 1, points_to_evaluate=[{"a": "x"}])


def test_a_space_of_hyperopt_is_accepted() -> None:
    hp = hyperopt.hp
    space = {"x": hp.uniform("x", 0, 1), "n": {"y": hp.choice("y", ["a", "b"])}, "c": 3}
    searcher = HyperOptSearch(
        space, metric="loss", mode="min", random_state_seed=0, points_to_evaluate=[{"x": 0.5, "y": "b"}]
    )
    assert searcher.suggest("a") == {"x": 0.5, "n": {"y": "b"}, "c": 3}
    searcher.on_trial_complete("a", {"loss": 1.0})
    config: Any = searcher.suggest("b")
    assert 0 <= config["x"] <= 1
    assert config["n"]["y"] in ("a", "b")


def test_failed_trials_are_errors_in_hyperopt() -> None:
    searcher = HyperOptSearch(metric="loss", mode="max", random_state_seed=0)
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    for name, result in (("good", {"loss": 2.0}), ("bad", {"loss": float("nan")})):
        searcher.suggest(name)
        searcher.on_trial_complete(name, result)
    assert searcher._trials.losses() == [-2.0]
    assert [each["state"] for each in searcher._trials._dynamic_trials] == [
        hyperopt.JOB_STATE_DONE,
        hyperopt.JOB_STATE_ERROR,
    ]
