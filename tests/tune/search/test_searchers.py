"""Searchers, their wrappers, and the search algorithms that create trials."""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from skate.tune.error import TuneError
from skate.tune.experiment.trial import Trial
from skate.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Repeater,
    SearchAlgorithm,
    Searcher,
    SearchGenerator,
    SobolSearch,
    create_searcher,
    grid_search,
)
from skate.tune.search.repeater import TRIAL_INDEX
from skate.tune.search.sample import choice, lograndint, quniform, randint, sample_from, uniform


class Counting(Searcher):
    """Suggests 1, 2, 3 …, and records what it is told."""

    def __init__(
        self, limit: float = math.inf, metric: str | None = "score", mode: str | None = "max"
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self.count = 0
        self.limit = limit
        self.completed: list[tuple[str, Any, bool]] = []
        self.properties: Any = None

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        self.properties = (metric, mode, config, spec)
        return True

    def suggest(self, trial_id: str) -> Any:
        if self.count >= self.limit:
            return Searcher.FINISHED
        self.count += 1
        return {"x": {"y": self.count}}

    def on_trial_complete(
        self, trial_id: str, result: Any = None, error: bool = False, **kwargs: Any
    ) -> None:
        self.completed.append((trial_id, result, error))


def all_trials(algorithm: SearchAlgorithm) -> list[Trial]:
    trials = []
    while (trial := algorithm.next_trial()) is not None:
        trials.append(trial)
    return trials


def basic(spec: dict[str, Any], **options: Any) -> BasicVariantGenerator:
    algorithm = BasicVariantGenerator(**options)
    algorithm.add_configurations({"name": {"run": "trainable", **spec}})
    return algorithm


class TestSearcher:
    @pytest.mark.parametrize("mode", ["minimize", "obs", ["min", "other"]])
    def test_other_modes_are_refused(self, mode: Any) -> None:
        with pytest.raises(ValueError, match='mode must be "min" or "max"'):
            Searcher(metric=["a", "b"] if isinstance(mode, list) else "a", mode=mode)

    def test_metrics_and_modes_must_match(self) -> None:
        with pytest.raises(TypeError, match="both be strings or both be lists"):
            Searcher(metric="a", mode=["min"])
        with pytest.raises(ValueError, match="same length"):
            Searcher(metric=["a", "b"], mode=["min"])

    def test_what_a_subclass_does_not_define_is_an_error(self) -> None:
        searcher = Searcher()
        for call in (
            lambda: searcher.suggest("a"),
            lambda: searcher.on_trial_complete("a"),
            lambda: searcher.add_evaluated_point({}, 1.0),
        ):
            with pytest.raises(NotImplementedError, match="Searcher"):
                call()
        assert searcher.set_search_properties("a", "min", {}) is False
        assert searcher.set_max_concurrency(2) is False

    def test_state_is_saved_and_restored(self, tmp_path: Path) -> None:
        searcher = Counting()
        searcher.suggest("a")
        searcher.save(str(tmp_path / "state"))
        other = Counting()
        other.restore(str(tmp_path / "state"))
        assert other.suggest("b") == {"x": {"y": 2}}

    def test_the_newest_state_of_a_folder_is_restored(self, tmp_path: Path) -> None:
        searcher = Counting()
        for session in ("2026-01-01", "2026-01-02"):
            searcher.suggest("a")
            searcher.save_to_dir(str(tmp_path), session)
        other = Counting()
        other.restore_from_dir(str(tmp_path))
        assert other.count == 2
        assert {path.name for path in tmp_path.iterdir()} == {
            "searcher-state-2026-01-01.pkl",
            "searcher-state-2026-01-02.pkl",
        }
        with pytest.raises(RuntimeError, match="nothing to restore"):
            other.restore_from_dir(str(tmp_path / "none"))

    def test_a_searcher_that_cannot_be_saved_is_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        searcher = Counting()
        searcher.properties = (each for each in ())
        searcher.save_to_dir(str(tmp_path))
        assert "Counting was not saved" in caplog.text
        assert not list(tmp_path.iterdir())

    def test_trials_of_another_experiment_are_added(self, caplog: pytest.LogCaptureFixture) -> None:
        points: list[Any] = []

        class Learning(Counting):
            def add_evaluated_point(self, parameters: Any, value: Any, *args: Any, **kwargs: Any) -> None:
                points.append((parameters["x"], value, kwargs["error"], kwargs["pruned"]))

        trials = []
        for number, (status, done) in enumerate(
            [("TERMINATED", True), ("TERMINATED", False), ("ERROR", False)]
        ):
            trial = Trial("t", config={"x": number})
            trial.set_status(status)
            trial.update_last_result({"eval": {"loss": number * 10}, "done": done})
            trials.append(trial)
        trials.append(Trial("t", config={"x": 9}))
        Learning().add_evaluated_trials(trials, "eval/loss")
        assert points == [(0, 0, False, False), (1, 10, False, True), (2, 20, True, False)]
        assert not caplog.text
        Learning().add_evaluated_trials(trials[0], "missing")
        assert "No completed trial has the metric 'missing'" in caplog.text
        with pytest.raises(TypeError, match="got int"):
            Learning().add_evaluated_trials(3, "loss")


class TestConcurrencyLimiter:
    def test_no_more_trials_run_than_allowed(self) -> None:
        limiter = ConcurrencyLimiter(Counting(), max_concurrent=2)
        assert limiter.suggest("a") == {"x": {"y": 1}}
        assert limiter.suggest("b") == {"x": {"y": 2}}
        assert limiter.suggest("c") is None
        limiter.on_trial_complete("a", {"score": 1})
        assert limiter.suggest("c") == {"x": {"y": 3}}
        assert limiter.searcher.completed == [("a", {"score": 1}, False)]  # type: ignore[attr-defined]

    def test_a_batch_is_told_after_its_last_trial(self) -> None:
        searcher = Counting()
        limiter = ConcurrencyLimiter(searcher, max_concurrent=3, batch=True)
        for each in "ab":
            limiter.suggest(each)
        limiter.on_trial_complete("b", {"score": 1}, error=False)
        assert searcher.completed == []
        assert limiter.num_unfinished_live_trials == 1
        limiter.on_trial_complete("a", None, error=True)
        assert searcher.completed == [("b", {"score": 1}, False), ("a", None, True)]
        assert not limiter.live_trials

    def test_the_end_of_the_search_is_passed_on(self) -> None:
        limiter = ConcurrencyLimiter(Counting(limit=1), max_concurrent=2)
        limiter.suggest("a")
        assert limiter.suggest("b") == Searcher.FINISHED
        assert limiter.live_trials == {"a"}

    def test_a_searcher_with_a_limit_of_its_own_takes_over(self) -> None:
        class Own(Counting):
            def set_max_concurrency(self, max_concurrent: int) -> bool:
                self.limit_of_trials = max_concurrent
                return True

        searcher = Own()
        limiter = ConcurrencyLimiter(searcher, max_concurrent=1)
        assert searcher.limit_of_trials == 1
        assert [limiter.suggest(each) for each in "ab"] == [{"x": {"y": 1}}, {"x": {"y": 2}}]

    def test_state_without_the_searcher_is_restored(self) -> None:
        searcher = Counting()
        limiter = ConcurrencyLimiter(searcher, max_concurrent=2)
        limiter.suggest("a")
        limiter.suggest("b")
        other = ConcurrencyLimiter(searcher, max_concurrent=5)
        other.set_state(limiter.get_state())
        assert other.suggest("c") is None
        assert other.searcher is searcher

    def test_wrong_arguments_are_refused(self) -> None:
        with pytest.raises(ValueError, match="positive integer, got 0"):
            ConcurrencyLimiter(Counting(), max_concurrent=0)
        with pytest.raises(TypeError, match="needs a Searcher, got BasicVariantGenerator"):
            ConcurrencyLimiter(BasicVariantGenerator(), 2)  # type: ignore[arg-type]
        limiter = ConcurrencyLimiter(Counting(), max_concurrent=2)
        limiter.suggest("a")
        with pytest.raises(ValueError, match="must be unique"):
            limiter.suggest("a")

    def test_properties_reach_searchers_that_do_not_accept_those_of_the_experiment(self) -> None:
        class Old(Counting):
            def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
                self._metric = metric
                return True

        limiter = ConcurrencyLimiter(Old(), max_concurrent=2)
        assert limiter.set_search_properties("loss", "min", {}, num_samples=4)
        assert limiter.metric == "loss"


class TestRepeater:
    def test_each_configuration_is_repeated_and_averaged(self) -> None:
        searcher = Counting()
        repeater = Repeater(searcher, repeat=3)
        configs = [repeater.suggest(str(number)) for number in range(4)]
        assert [config["x"]["y"] for config in configs] == [1, 1, 1, 2]  # type: ignore[index]
        assert [config[TRIAL_INDEX] for config in configs] == [0, 1, 2, 0]  # type: ignore[index]
        for number in range(3):
            repeater.on_trial_complete(str(number), {"score": number * 10})
        assert searcher.completed == [("0", {"score": 10.0}, False)]

    def test_failed_trials_do_not_count(self) -> None:
        searcher = Counting()
        repeater = Repeater(searcher, repeat=3, set_index=False)
        for number in range(6):
            repeater.suggest(str(number))
        repeater.on_trial_complete("0", {"score": 4})
        repeater.on_trial_complete("1", {"score": math.nan})
        repeater.on_trial_complete("2", None, error=True)
        for number in range(3, 6):
            repeater.on_trial_complete(str(number), {"other": 1})
        assert searcher.completed == [("0", {"score": 4.0}, False), ("3", None, True)]

    def test_the_end_of_the_search_is_passed_on(self) -> None:
        repeater = Repeater(Counting(limit=1), repeat=2)
        assert [repeater.suggest(each) is not None for each in "ab"] == [True, True]
        assert repeater.suggest("c") == Searcher.FINISHED

    def test_unknown_trials_are_ignored(self, caplog: pytest.LogCaptureFixture) -> None:
        Repeater(Counting(), repeat=2).on_trial_complete("unknown", {"score": 1})
        assert "unknown" in caplog.text

    def test_state_continues_after_pickling(self) -> None:
        repeater = Repeater(Counting(), repeat=3)
        repeater.suggest("a")
        loaded = cloudpickle.loads(cloudpickle.dumps(repeater))
        assert loaded.suggest("b") == repeater.suggest("b")
        state = repeater.get_state()
        assert "searcher" not in state
        other = Repeater(repeater.searcher, repeat=1)
        other.set_state(state)
        assert other.repeat == 3

    def test_a_wrong_number_is_refused(self) -> None:
        with pytest.raises(ValueError, match="positive integer, got 0"):
            Repeater(Counting(), repeat=0)


class TestSearchGenerator:
    def generator(self, searcher: Searcher, **spec: Any) -> SearchGenerator:
        generator = SearchGenerator(searcher)
        generator.add_configurations({"name": {"run": "trainable", **spec}})
        return generator

    def test_trials_have_suggested_and_constant_values(self) -> None:
        generator = self.generator(Counting(), num_samples=2, config={"x": {"z": 5}, "c": 1}, max_failures=3)
        first, second = all_trials(generator)
        assert first.config == {"x": {"y": 1, "z": 5}, "c": 1}
        assert first.evaluated_params == {"x/y": 1}
        assert first.experiment_tag == "1_c=1,y=1,z=5"
        assert first.max_failures == 3
        assert second.config["x"]["y"] == 2
        assert generator.is_finished()

    def test_a_searcher_may_finish_early(self) -> None:
        generator = self.generator(Counting(limit=1), num_samples=5)
        assert len(all_trials(generator)) == 1
        assert generator.is_finished()

    def test_one_experiment_is_accepted(self) -> None:
        generator = self.generator(Counting())
        with pytest.raises(TuneError, match="one experiment, got 2"):
            generator.add_configurations({"other": {"run": "trainable"}})
        with pytest.raises(TuneError, match="needs `run`"):
            SearchGenerator(Counting()).add_configurations({"other": {}})
        with pytest.raises(TypeError, match="got int"):
            SearchGenerator(Counting()).add_configurations([3])
        with pytest.raises(TypeError, match="needs a Searcher"):
            SearchGenerator(BasicVariantGenerator())  # type: ignore[arg-type]

    def test_leftover_trials_of_a_repeater_are_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        self.generator(Repeater(Counting(), repeat=3), num_samples=4)
        assert "not a multiple of repeat=3" in caplog.text

    def test_state_with_wrappers_is_saved_and_restored(self, tmp_path: Path) -> None:
        def build() -> SearchGenerator:
            return SearchGenerator(ConcurrencyLimiter(Repeater(Counting(), repeat=2), max_concurrent=3))

        generator = build()
        generator.add_configurations({"name": {"run": "trainable", "num_samples": 9}})
        trials = all_trials(generator)
        assert len(trials) == 3
        generator.save_to_dir(str(tmp_path), "session")
        other = build()
        assert other.has_checkpoint(str(tmp_path))
        other.restore_from_dir(str(tmp_path))
        assert other.next_trial() is None, "three trials are running"
        other.on_trial_complete(trials[0].trial_id, {"score": 1})
        trial = other.next_trial()
        assert trial is not None
        assert (trial.config["x"]["y"], trial.config[TRIAL_INDEX]) == (2, 1)
        with pytest.raises(RuntimeError, match="belongs to 2 wrappers"):
            SearchGenerator(Counting()).restore_from_dir(str(tmp_path))
        with pytest.raises(RuntimeError, match="no state"):
            build().restore_from_dir(str(tmp_path / "none"))


class TestBasicVariantGenerator:
    def test_trials_have_ids_tags_and_values(self) -> None:
        algorithm = basic(
            {"config": {"a": grid_search([1, 2]), "b": {"c": choice([3])}, "d": 4}, "num_samples": 2}
        )
        trials = all_trials(algorithm)
        assert algorithm.total_samples == len(trials) == 4
        assert trials[1].config == {"a": 2, "b": {"c": 3}, "d": 4}
        assert trials[1].evaluated_params == {"a": 2, "b/c": 3}
        assert trials[1].experiment_tag == "1_a=2,c=3"
        assert trials[1].trial_id.endswith("_00001")
        assert algorithm.is_finished()

    def test_constants_have_a_number_as_their_tag(self) -> None:
        first, second = all_trials(basic({"config": {"a": 1}, "num_samples": 2, "stop": {"loss": 3}}))
        assert (first.experiment_tag, second.experiment_tag) == ("0", "1")
        assert first.stopping_criterion == {"loss": 3}

    def test_points_replace_the_first_samples(self) -> None:
        algorithm = basic(
            {"config": {"a": grid_search([1, 2]), "b": randint(0, 3)}, "num_samples": 4},
            points_to_evaluate=[{"a": 2, "b": 2}, {"a": 1}, {"b": 2}],
        )
        configs = [trial.config for trial in all_trials(algorithm)]
        assert algorithm.total_samples == len(configs) == 6
        assert configs[0] == {"a": 2, "b": 2}
        assert configs[1]["a"] == 1
        assert configs[2:4] == [{"a": 1, "b": 2}, {"a": 2, "b": 2}]

    def test_unknown_keys_of_points_are_errors(self) -> None:
        with pytest.raises(ValueError, match=r"the key 'model/lrr'.* Did you mean 'model/lr'\?"):
            basic({"config": {"model": {"lr": uniform(0, 1)}}}, points_to_evaluate=[{"model": {"lrr": 1}}])
        with pytest.raises(TypeError, match="list of dicts"):
            BasicVariantGenerator(points_to_evaluate=[1])  # type: ignore[list-item]

    def test_points_outside_the_domain_are_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        (trial,) = all_trials(basic({"config": {"lr": uniform(0, 1)}}, points_to_evaluate=[{"lr": 3}]))
        assert trial.config == {"lr": 3}
        assert "value 3 of 'lr'" in caplog.text

    def test_no_more_trials_run_than_allowed(self) -> None:
        algorithm = basic({"num_samples": 3}, max_concurrent=2)
        first, _ = all_trials(algorithm)
        assert not algorithm.is_finished()
        algorithm.on_trial_complete(first.trial_id)
        assert len(all_trials(algorithm)) == 1

    def test_a_seed_fixes_all_samples(self) -> None:
        spec = {"config": {"u": uniform(0, 1), "g": grid_search([1, 2])}, "num_samples": 3}
        runs = [[trial.config for trial in all_trials(basic(spec, random_state=seed))] for seed in (1, 1, 2)]
        assert runs[0] == runs[1] != runs[2]
        assert len({config["u"] for config in runs[0]}) == 6

    def test_sampled_values_can_be_constant_over_the_grid(self) -> None:
        spec = {"config": {"u": uniform(0, 1), "g": grid_search([1, 2])}, "num_samples": 2}
        configs = [trial.config for trial in all_trials(basic(spec, constant_grid_search=True))]
        assert configs[0]["u"] == configs[1]["u"] != configs[2]["u"] == configs[3]["u"]

    def test_several_experiments_follow_each_other(self) -> None:
        algorithm = BasicVariantGenerator()
        algorithm.add_configurations({"a": {"run": "one"}, "b": {"run": "two"}})
        assert [trial.trainable_name for trial in all_trials(algorithm)] == ["one", "two"]

    @pytest.mark.parametrize("created", range(7))
    def test_a_run_continues_identically_after_saving(self, created: int, tmp_path: Path) -> None:
        spec = {
            "config": {
                "g": grid_search([1, 2, {"h": grid_search([3, 4])}]),
                "u": uniform(0, 1),
                "f": sample_from(lambda config: config["u"] + 1),
            },
            "num_samples": 2,
        }
        algorithm = basic(spec, random_state=1, points_to_evaluate=[{"u": 0.5}])
        for _ in range(created):
            algorithm.next_trial()
        algorithm.save_to_dir(str(tmp_path), session_str="s")
        other = BasicVariantGenerator()
        assert other.has_checkpoint(str(tmp_path))
        other.restore_from_dir(str(tmp_path))
        loaded = cloudpickle.loads(cloudpickle.dumps(algorithm))
        expected = [(trial.trial_id, trial.config) for trial in all_trials(algorithm)]
        assert [(trial.trial_id, trial.config) for trial in all_trials(other)] == expected
        assert [(trial.trial_id, trial.config) for trial in all_trials(loaded)] == expected
        assert len(expected) == 8 - created

    def test_a_huge_grid_is_not_built_in_memory(self) -> None:
        algorithm = basic({"config": {str(number): grid_search(range(100)) for number in range(10)}})
        assert algorithm.total_samples == 100**10
        assert algorithm.next_trial() is not None
        assert len(cloudpickle.dumps(algorithm)) < 100_000


class TestSobolSearch:
    SPACE: ClassVar = {
        "a": uniform(0, 1),
        "b": {"c": [lograndint(1, 100), 7]},
        "d": choice(["x", "y"]),
        "e": quniform(0, 2, 0.5),
    }

    def configs(self, count: int, **options: Any) -> list[Any]:
        searcher = SobolSearch(**options)
        assert searcher.set_search_properties("loss", "min", self.SPACE)
        return [searcher.suggest(str(number)) for number in range(count)]

    @pytest.fixture(autouse=True)
    def _needs_scipy(self) -> None:
        pytest.importorskip("scipy")

    def test_configurations_lie_in_the_space(self) -> None:
        for config in self.configs(100, seed=1):
            assert 0 <= config["a"] <= 1
            assert 1 <= config["b"]["c"][0] < 100
            assert config["b"]["c"][1] == 7
            assert config["d"] in ("x", "y")
            assert config["e"] in (0, 0.5, 1, 1.5, 2)

    def test_points_cover_each_axis_evenly(self) -> None:
        values = [config["a"] for config in self.configs(64, seed=3)]
        assert sorted(int(value * 64) for value in values) == list(range(64))

    def test_a_seed_fixes_the_sequence(self) -> None:
        assert self.configs(70, seed=1) == self.configs(70, seed=1) != self.configs(70, seed=2)

    def test_points_come_first_and_results_are_ignored(self) -> None:
        point = {"a": 0.5, "b": {"c": [3, 7]}, "d": "x", "e": 1.0}
        searcher = SobolSearch(self.SPACE, points_to_evaluate=[point], seed=1)
        assert searcher.suggest("a") == point
        searcher.on_trial_complete("a", {"loss": math.nan})
        assert searcher.suggest("b") == self.configs(1, seed=1)[0]

    def test_a_run_continues_identically_after_pickling(self) -> None:
        searcher = SobolSearch(self.SPACE)
        for number in range(60):
            searcher.suggest(str(number))
        loaded = cloudpickle.loads(cloudpickle.dumps(searcher))
        assert [loaded.suggest(f"{n}b") for n in range(80)] == [searcher.suggest(f"{n}b") for n in range(80)]

    def test_spaces_without_distributions_are_refused(self) -> None:
        with pytest.raises(ValueError, match="cannot express the function at 'f'"):
            SobolSearch({"f": sample_from(lambda: 1)})
        with pytest.raises(ValueError, match="cannot express the grid search at 'g/h'"):
            SobolSearch({"g": {"h": grid_search([1])}})
        with pytest.raises(ValueError, match=r"the key 'aa', .* Did you mean 'a'\?"):
            SobolSearch({"a": uniform(0, 1)}, points_to_evaluate=[{"aa": 1}])
        with pytest.raises(RuntimeError, match="SobolSearch has no search space"):
            SobolSearch().suggest("a")


LIBRARIES = {
    "optuna": ("optuna", "OptunaSearch needs optuna: pip install 'skate[tune]'"),
    "hyperopt": ("hyperopt", "HyperOptSearch needs hyperopt: pip install hyperopt"),
    "nevergrad": ("nevergrad", "NevergradSearch needs nevergrad: pip install nevergrad"),
    "bayesopt": (
        "bayes_opt",
        "BayesOptSearch needs bayesian-optimization: pip install bayesian-optimization",
    ),
    "bohb": ("ConfigSpace", "TuneBOHB needs ConfigSpace: pip install ConfigSpace"),
    "zoopt": ("zoopt", "ZOOptSearch needs zoopt: pip install zoopt"),
    "hebo": ("hebo", "HEBOSearch needs HEBO: pip install HEBO"),
    "ax": ("ax", "AxSearch needs ax-platform: pip install ax-platform"),
}


class TestCreateSearcher:
    @pytest.mark.parametrize("name", LIBRARIES)
    def test_a_library_that_is_not_installed_is_named(self, name: str) -> None:
        module, message = LIBRARIES[name]
        if importlib.util.find_spec(module) is not None:
            pytest.skip(f"{module} is installed")
        with pytest.raises(ImportError, match=re.escape(message)):
            create_searcher(name)

    def test_searchers_are_created_by_name(self) -> None:
        assert isinstance(create_searcher("random", max_concurrent=2), BasicVariantGenerator)
        assert isinstance(create_searcher("Variant_Generator"), BasicVariantGenerator)

    def test_an_unknown_name_is_an_error_with_a_suggestion(self) -> None:
        with pytest.raises(ValueError, match=r"no search algorithm 'optna'\. Did you mean 'optuna'\?"):
            create_searcher("optna")

    def test_arguments_of_other_searchers_are_dropped(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            create_searcher("random", metric="loss", mode="min")
        assert "has no arguments ['metric', 'mode']" in caplog.text
