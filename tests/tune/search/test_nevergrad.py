"""Search with Nevergrad."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from skate.tune.search.nevergrad import NevergradSearch
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
from tests.tune.search.contract import SearcherContract

pytestmark = pytest.mark.filterwarnings("ignore")  # of Nevergrad, about the libraries that it uses
ng = pytest.importorskip("nevergrad", exc_type=ImportError)


class TestContract(SearcherContract):
    BAD_SPACE: ClassVar = {"sub": {"bad": choice([uniform(0, 1)])}}

    def build(self, seed: int = 0, **options: Any) -> NevergradSearch:
        return NevergradSearch(seed=seed, **options)


def test_all_kinds_of_domains_are_suggested() -> None:
    searcher = NevergradSearch("RandomSearch", metric="loss", mode="min", seed=0)
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
            "g": randn(10, 1),
            "h": randint(3, 4),
        },
    )
    found: list[Any] = [searcher.suggest(str(number)) for number in range(100)]
    assert {config["a"] for config in found} == {"a", None, 3}
    assert {config["b"][0] for config in found} == {0, 1, 2}
    assert {config["c"] for config in found} == {3, 6, 9}
    assert {config["d"] for config in found} == {1, 2, 3, 4}
    assert {config["e"] for config in found} == {0, 0.5, 1}
    assert {config["h"] for config in found} == {3}
    assert all(1e-4 <= config["f"] <= 1e-2 for config in found)


def test_optimizers_are_accepted_in_all_forms() -> None:
    space = ng.p.Dict(x=ng.p.Scalar(lower=0, upper=1))
    for optimizer in (
        ng.optimizers.OnePlusOne,
        ng.optimizers.registry["DE"],
        ng.families.ParametrizedOnePlusOne(),
        "OnePlusOne",
    ):
        searcher = NevergradSearch(optimizer, space=space.copy(), metric="loss", mode="min", seed=0)
        config: Any = searcher.suggest("a")
        assert 0 <= config["x"] <= 1


def test_a_created_optimizer_is_accepted() -> None:
    instrumentation = ng.p.Instrumentation(x=ng.p.Scalar(lower=0, upper=1))
    searcher = NevergradSearch(
        ng.optimizers.OnePlusOne(instrumentation, budget=10),
        metric="loss",
        mode="min",
        points_to_evaluate=[{"x": 0.25}],
    )
    assert searcher.suggest("a") == {"x": pytest.approx(0.25)}
    searcher.on_trial_complete("a", {"loss": 1.0})
    array = NevergradSearch(
        ng.optimizers.OnePlusOne(2, budget=10), space=["x", "y"], metric="loss", mode="min"
    )
    assert set(array.suggest("a") or ()) == {"x", "y"}


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no optimizer 'OnePlusOn'\. Did you mean"):
        NevergradSearch("OnePlusOn")
    created = ng.optimizers.OnePlusOne(2, budget=10)
    with pytest.raises(ValueError, match="optimizer_kwargs are for an optimizer class"):
        NevergradSearch(created, {"budget": 10})
    with pytest.raises(ValueError, match="space must be None or the list"):
        NevergradSearch(created, space={"x": uniform(0, 1)})
    with pytest.raises(TypeError, match="optimizer must be"):
        NevergradSearch(3)
