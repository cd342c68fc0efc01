"""Search with bayesian-optimization."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import pytest

from skate.tune.experiment.trial import Trial
from skate.tune.search.bayesopt import BayesOptSearch
from skate.tune.search.sample import loguniform, quniform, randint, uniform
from skate.tune.search.searcher import Searcher
from tests.tune.search.contract import SearcherContract, loss

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library, about the libraries that it uses
pytest.importorskip("bayes_opt", exc_type=ImportError)


class TestContract(SearcherContract):
    TRIALS = 15
    RUNS = 2
    BAD_SPACE: ClassVar = {"sub": {"bad": randint(0, 3)}}

    def build(self, seed: int = 0, **options: Any) -> BayesOptSearch:
        return BayesOptSearch(random_state=seed, random_search_steps=4, **options)


@pytest.mark.parametrize(
    "utility", [{"kind": "ei", "xi": 0.1}, {"kind": "poi", "xi": 0.1}, {"kind": "ucb", "kappa": 1}]
)
def test_acquisition_functions_can_be_chosen(utility: dict[str, Any]) -> None:
    searcher = BayesOptSearch(metric="loss", mode="min", random_search_steps=2, utility_kwargs=utility)
    searcher.set_search_properties(None, None, {"x": uniform(-5, 5), "sub": {"y": uniform(-5, 5)}})
    for number in range(5):
        config: Any = searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), {"loss": loss(config)})


def test_repeated_configurations_end_the_search(caplog: pytest.LogCaptureFixture) -> None:
    searcher = BayesOptSearch({"x": (1.0, 1.0)}, metric="loss", mode="min", patience=3)
    found = [searcher.suggest(str(number)) for number in range(5)]
    assert found == [{"x": 1.0}, None, None, Searcher.FINISHED, Searcher.FINISHED]
    assert "it has converged" in caplog.text
    repeating = BayesOptSearch({"x": (1.0, 1.0)}, metric="loss", mode="min", patience=3, skip_duplicate=False)
    assert [repeating.suggest(str(number)) for number in range(4)] == [{"x": 1.0}] * 3 + [Searcher.FINISHED]


def test_quantized_values_are_rounded_and_distributions_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    searcher = BayesOptSearch(metric="loss", mode="min")
    with caplog.at_level(logging.WARNING):
        searcher.set_search_properties(None, None, {"q": quniform(0, 1, 0.25), "l": loguniform(1e-3, 1)})
    assert "searches 'l' uniformly, not with LogUniform" in caplog.text
    config: Any = searcher.suggest("a")
    assert config["q"] in (0, 0.25, 0.5, 0.75, 1)
    assert BayesOptSearch.convert_search_space({"a": {"b": uniform(0, 1)}, "c": 1}) == {"a/b": (0, 1)}
    assert BayesOptSearch.convert_search_space({"b": uniform(0, 1), "c": 1}, join=True) == {
        "b": (0, 1),
        "c": 1,
    }


def test_trials_of_another_experiment_are_learned_from() -> None:
    trial = Trial("t", config={"x": 0.5})
    trial.set_status(Trial.TERMINATED)
    trial.update_last_result({"loss": 1.0, "done": True})
    searcher = BayesOptSearch({"x": (0.0, 1.0)}, metric="loss", mode="min", analysis=[trial])
    searcher.suggest("a")
    assert [each["target"] for each in searcher.optimizer.res] == [-1.0]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="patience must be positive, got 0"):
        BayesOptSearch(patience=0)
    with pytest.raises(ValueError, match="must not be negative"):
        BayesOptSearch(repeat_float_precision=-1)
    with pytest.raises(TypeError, match="must be an integer"):
        BayesOptSearch(repeat_float_precision=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no acquisition function 'ucbb'\. Did you mean 'ucb'"):
        BayesOptSearch(utility_kwargs={"kind": "ucbb"})
