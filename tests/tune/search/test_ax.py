"""Search with Ax."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from skate.tune.search.ax import AxSearch
from skate.tune.search.sample import choice, lograndint, loguniform, qrandint, quniform, randint, randn
from tests.tune.search.contract import SearcherContract

pytestmark = [
    pytest.mark.slow,  # the library takes many seconds to import, and seconds to suggest
    pytest.mark.filterwarnings("ignore"),  # of Ax, about the libraries that it uses
]
pytest.importorskip("ax", exc_type=ImportError)


class TestContract(SearcherContract):
    TRIALS = 9
    RUNS = 1
    SHORT = 4
    BAD_SPACE: ClassVar = {"sub": {"bad": randn()}}

    def build(self, seed: int = 0, **options: Any) -> AxSearch:
        return AxSearch(random_seed=seed, **options)

    def test_a_model_continues_identically_after_pickling(self, tmp_path: Any) -> None:
        searcher = self.start(seed=1)
        for number in range(6):
            self.step(searcher, str(number))
        searcher.save_to_dir(str(tmp_path))
        other = self.build(7)
        other.restore_from_dir(str(tmp_path))
        assert self.step(other, "next") == self.step(searcher, "next")


def test_all_kinds_of_domains_are_suggested() -> None:
    searcher = AxSearch(metric="loss", mode="min", random_seed=0)
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
            "g": choice([5]),
        },
    )
    config: Any = searcher.suggest("a")
    assert config["a"] in ("a", "b")
    assert config["b"][0] in (0, 1, 2)
    assert config["c"] in (3, 6, 9)
    assert config["d"] in (1, 2, 3, 4)
    assert config["e"] in (0, 0.5, 1)
    assert 1e-4 <= config["f"] <= 1e-2
    assert config["g"] == 5


def test_choices_of_several_types_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"parameter 'sub/a' of the type Categorical .* all be bool, int, float or str"
    ):
        AxSearch.convert_search_space({"sub": {"a": choice([1, "b"])}})


def client() -> Any:
    from ax.service.ax_client import AxClient, ObjectiveProperties

    created = AxClient(verbose_logging=False, random_seed=0)
    created.create_experiment(
        parameters=[{"name": "x", "type": "range", "bounds": [0.0, 1.0], "value_type": "float"}],
        objectives={"accuracy": ObjectiveProperties(minimize=False)},
        outcome_constraints=["memory <= 3.0"],
    )
    return created


def test_a_client_with_an_experiment_is_accepted() -> None:
    searcher = AxSearch(ax_client=client(), points_to_evaluate=[{"x": 0.5}])
    assert (searcher.metric, searcher.mode) == ("accuracy", "max")
    assert searcher.suggest("a") == {"x": 0.5}
    searcher.on_trial_complete("a", {"accuracy": 1.0, "memory": 2.0})
    searcher.suggest("b")
    searcher.on_trial_complete("b", {"accuracy": 1.0, "memory": math.nan})
    searcher.suggest("c")
    searcher.on_trial_complete("c", {"accuracy": 1.0})
    states = [trial.status.name for trial in searcher._client.experiment.trials.values()]
    assert states == ["COMPLETED", "FAILED", "FAILED"]
    with pytest.raises(ValueError, match="has an experiment"):
        AxSearch(ax_client=client(), metric="accuracy")


def test_nothing_is_suggested_while_ax_waits_for_results() -> None:
    searcher = AxSearch(metric="loss", mode="min", random_seed=0)
    searcher.set_search_properties(None, None, {"x": loguniform(1e-4, 1e-2)})
    found = [searcher.suggest(str(number)) for number in range(12)]
    assert found[0] is not None
    assert found[-1] is None
