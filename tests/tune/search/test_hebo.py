"""Search with HEBO."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from skate.tune.search.hebo import HEBOSearch
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

pytestmark = [
    pytest.mark.slow,  # the library takes many seconds to import, and about ten to suggest
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore"),  # of HEBO, about the libraries that it uses
]
pytest.importorskip("hebo.optimizers.hebo", exc_type=ImportError)


class TestContract(SearcherContract):
    TRIALS = 14
    RUNS = 1
    SHORT = 4
    BAD_SPACE: ClassVar = {"sub": {"bad": randn()}}

    def build(self, seed: int = 0, **options: Any) -> HEBOSearch:
        return HEBOSearch(random_state_seed=seed, max_concurrent=1, rand_sample=20, **options)

    def best(self, searcher: Any, sign: float = 1.0) -> float:
        searcher._options["rand_sample"] = 3  # the model is used after so many points
        return super().best(searcher, sign)


def test_a_model_continues_identically_after_pickling(tmp_path: Any) -> None:
    contract = TestContract()
    searcher = HEBOSearch(metric="loss", mode="min", random_state_seed=0, max_concurrent=1, rand_sample=3)
    searcher.set_search_properties(None, None, contract.space())
    for number in range(3):
        contract.step(searcher, str(number))
    searcher.save_to_dir(str(tmp_path))
    other = HEBOSearch()
    other.restore_from_dir(str(tmp_path))
    assert contract.step(other, "next") == contract.step(searcher, "next")


def test_all_kinds_of_domains_are_suggested() -> None:
    searcher = HEBOSearch(metric="loss", mode="min", random_state_seed=0, rand_sample=100)
    searcher.set_search_properties(
        None,
        None,
        {
            "a": choice(["a", "b"]),
            "b": [randint(0, 3), 7],
            "c": qrandint(1, 10, 3),
            "d": lograndint(1, 5),
            "e": quniform(0, 1, 0.5),
            "f": loguniform(1e-4, 1e-2),
        },
    )
    for number in range(20):
        config: Any = searcher.suggest(str(number))
        assert config["a"] in ("a", "b")
        assert config["b"][0] in (0, 1, 2)
        assert config["c"] in (3, 6, 9)
        assert config["d"] in (1, 2, 3, 4)
        assert config["e"] in (0, 0.5, 1)
        assert 1e-4 <= config["f"] <= 1e-2
        searcher.on_trial_complete(str(number), {"loss": float(number)})


def test_trials_run_up_to_the_limit() -> None:
    searcher = HEBOSearch(metric="loss", mode="min", max_concurrent=2, rand_sample=100)
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    assert searcher.suggest("a")
    assert searcher.suggest("b")
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("a", {"loss": 1.0})
    assert searcher.suggest("c")


def test_evaluated_rewards_are_observed() -> None:
    searcher = HEBOSearch(
        metric="loss", mode="max", points_to_evaluate=[{"x": 0.25}], evaluated_rewards=[2.0], rand_sample=100
    )
    searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    assert searcher.suggest("a") != {"x": 0.25}
    assert searcher._optimizer.y.tolist() == [[-2.0]]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="max_concurrent must be a positive integer"):
        HEBOSearch(max_concurrent=0)
    with pytest.raises(TypeError, match="must be a DesignSpace of HEBO, got list"):
        HEBOSearch([1])
