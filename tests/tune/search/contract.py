"""What every searcher of an optimization library must do, for the tests of each."""

from __future__ import annotations

import logging
import math
import random
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from skate.tune.search import Searcher, grid_search
from skate.tune.search.sample import sample_from, uniform

OPTIMUM = {"x": 0.3, "y": -1.4}


def loss(config: dict[str, Any]) -> float:
    return float((config["x"] - OPTIMUM["x"]) ** 2 + (config["sub"]["y"] - OPTIMUM["y"]) ** 2)


class SearcherContract:
    """Tests of one searcher; a subclass defines `build`, and may change the effort."""

    TRIALS: ClassVar[int] = 40
    RUNS: ClassVar[int] = 3  # seeds over which the comparison with random search is averaged
    SHORT: ClassVar[int] = 6  # trials of tests in which the model does not matter
    ADDS_POINTS: ClassVar[bool] = True
    BAD_SPACE: ClassVar[Any] = None  # a space with an inexpressible parameter at `sub/bad`, besides functions

    def build(self, seed: int = 0, **options: Any) -> Any:
        raise NotImplementedError

    def space(self) -> dict[str, Any]:
        return {"x": uniform(-5, 5), "sub": {"y": uniform(-5, 5), "constant": 1}}

    def start(self, seed: int = 0, mode: str = "min", **options: Any) -> Any:
        searcher = self.build(seed, **options)
        assert searcher.set_search_properties("loss", mode, self.space()) is True
        return searcher

    def step(self, searcher: Any, name: str, sign: float = 1.0) -> dict[str, Any]:
        config = searcher.suggest(name)
        assert isinstance(config, dict)
        searcher.on_trial_result(name, {"loss": sign * loss(config), "training_iteration": 1})
        searcher.on_trial_complete(name, {"loss": sign * loss(config), "training_iteration": 1})
        return config

    def best(self, searcher: Any, sign: float = 1.0) -> float:
        return min(loss(self.step(searcher, str(number), sign)) for number in range(self.TRIALS))

    def random_best(self) -> float:
        generator = random.Random(0)
        runs = []
        for _ in range(200):
            points = [
                {"x": generator.uniform(-5, 5), "sub": {"y": generator.uniform(-5, 5)}}
                for _ in range(self.TRIALS)
            ]
            runs.append(min(map(loss, points)))
        return sum(runs) / len(runs)

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_it_finds_better_points_than_random_search(self, mode: str) -> None:
        sign = 1.0 if mode == "min" else -1.0
        found = [self.best(self.start(seed, mode), sign) for seed in range(self.RUNS)]
        assert sum(found) / len(found) < self.random_best()

    def test_suggestions_have_nested_values_within_the_bounds(self) -> None:
        searcher = self.start()
        for number in range(self.SHORT):
            config = self.step(searcher, str(number))
            assert set(config) == {"x", "sub"}
            assert type(config["x"]) is float
            assert -5 <= config["x"] <= 5
            assert -5 <= config["sub"]["y"] <= 5

    def test_a_seed_fixes_the_suggestions(self) -> None:
        first, second = self.start(seed=3), self.start(seed=3)
        runs = [[self.step(each, str(number)) for number in range(self.SHORT)] for each in (first, second)]
        assert runs[0] == runs[1]

    def test_other_random_numbers_of_the_process_change_nothing(self) -> None:
        import numpy as np

        first, second = self.start(seed=3), self.start(seed=3)
        expected = [self.step(first, str(number)) for number in range(self.SHORT)]
        found = []
        for number in range(self.SHORT):
            np.random.seed(number)
            random.seed(number)
            found.append(self.step(second, str(number)))
        assert found == expected

    @pytest.mark.parametrize("via_file", [False, True])
    def test_a_run_continues_identically_after_pickling(self, via_file: bool, tmp_path: Path) -> None:
        searcher = self.start(seed=1)
        for number in range(self.SHORT):
            self.step(searcher, str(number))
        running = searcher.suggest("running")
        if via_file:
            searcher.save_to_dir(str(tmp_path))
            other = self.build(7)
            other.restore_from_dir(str(tmp_path))
        else:
            other = cloudpickle.loads(cloudpickle.dumps(searcher))
        for each in (searcher, other):
            each.on_trial_complete("running", {"loss": loss(running)})
        expected = [self.step(searcher, f"{number}b") for number in range(self.SHORT)]
        assert [self.step(other, f"{number}b") for number in range(self.SHORT)] == expected

    @pytest.mark.parametrize(
        ("result", "error"),
        [
            ({"loss": math.nan}, False),
            ({"loss": math.inf}, False),
            ({"loss": -math.inf}, False),
            ({"loss": None}, False),
            ({"loss": "text"}, False),
            ({"other": 1}, False),
            ({}, False),
            (None, False),
            (None, True),
            ({"loss": 1.0}, True),
        ],
    )
    def test_trials_without_a_usable_value_do_not_stop_the_search(self, result: Any, error: bool) -> None:
        searcher = self.start()
        self.step(searcher, "good")
        for number in range(2):
            assert isinstance(searcher.suggest(f"bad{number}"), dict)
            if result:
                searcher.on_trial_result(f"bad{number}", {**result, "training_iteration": 1})
            searcher.on_trial_complete(f"bad{number}", result, error=error)
        for number in range(3):
            config = self.step(searcher, str(number))
            assert math.isfinite(loss(config))

    def test_a_missing_metric_is_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        searcher = self.start()
        searcher.suggest("a")
        with caplog.at_level(logging.WARNING):
            searcher.on_trial_complete("a", {"accuracy": 1})
        assert "The metric 'loss' is missing" in caplog.text
        assert "['accuracy']" in caplog.text

    def test_unknown_trials_are_ignored(self, caplog: pytest.LogCaptureFixture) -> None:
        searcher = self.start()
        self.step(searcher, "a")
        searcher.on_trial_complete("a", {"loss": 1})
        searcher.on_trial_complete("unknown", {"loss": 1})
        assert "Trial unknown is not a trial" in caplog.text

    def test_a_trial_that_asks_twice_gets_the_same_configuration(self) -> None:
        searcher = self.start()
        assert searcher.suggest("a") == searcher.suggest("a")

    def test_values_may_be_numbers_of_numpy(self) -> None:
        import numpy as np

        searcher = self.start()
        config = searcher.suggest("a")
        searcher.on_trial_result("a", {"loss": np.float32(1.5), "training_iteration": np.int64(1)})
        searcher.on_trial_complete("a", {"loss": np.float32(loss(config)), "training_iteration": np.int64(1)})
        assert isinstance(searcher.suggest("b"), dict)

    def test_metrics_may_be_nested(self) -> None:
        searcher = self.build(0)
        searcher.set_search_properties("eval/loss", "min", self.space())
        searcher.suggest("a")
        searcher.on_trial_complete("a", {"eval": {"loss": 1.0}})
        assert isinstance(searcher.suggest("b"), dict)

    @pytest.mark.parametrize("nested", [True, False])
    def test_points_are_suggested_first(self, nested: bool) -> None:
        points = [{"x": 1.0, "sub": {"y": 2.0}}, {"x": 3.0, "sub": {"y": 4.0}}]
        given = points if nested else [{"x": 1.0, "sub/y": 2.0}, {"x": 3.0, "sub/y": 4.0}]
        searcher = self.start(points_to_evaluate=given)
        found = [self.step(searcher, str(number)) for number in range(2)]
        for config, point in zip(found, points, strict=True):
            assert config["x"] == pytest.approx(point["x"])
            assert config["sub"]["y"] == pytest.approx(point["sub"]["y"])  # type: ignore[index]
        assert self.step(searcher, "next")["x"] != 3.0

    def test_unknown_keys_of_points_are_errors(self) -> None:
        with pytest.raises(ValueError, match=r"the key 'sub/yy', .* Did you mean 'sub/y'\?"):
            self.start(points_to_evaluate=[{"x": 1.0, "sub": {"yy": 2.0}}])
        with pytest.raises(TypeError, match="list of dicts"):
            self.build(points_to_evaluate={"x": 1.0})

    def test_points_may_have_constants_of_the_space(self) -> None:
        searcher = self.start(points_to_evaluate=[{"x": 1.0, "sub": {"y": 2.0, "constant": 1}}])
        assert searcher.suggest("a")["x"] == pytest.approx(1.0)

    def test_evaluated_points_are_learned_from(self) -> None:
        searcher = self.start()
        if not self.ADDS_POINTS:
            with pytest.raises(NotImplementedError, match=type(searcher).__name__):
                searcher.add_evaluated_point({"x": 0.1, "sub": {"y": 1.0}}, 1.0)
            return
        for number in range(self.SHORT):
            searcher.add_evaluated_point(
                {"x": 0.1 * number, "sub": {"y": 1.0, "constant": 1}, "other": 1}, number
            )
        searcher.add_evaluated_point({"x": 0.1, "sub/y": 1.0}, math.nan)
        searcher.add_evaluated_point({"x": 0.1, "sub/y": 1.0}, 1.0, error=True)
        searcher.add_evaluated_point({"x": 0.1, "sub/y": 1.0}, 1.0, pruned=True)
        self.step(searcher, "a")

    def test_modes_other_than_min_and_max_are_refused(self) -> None:
        with pytest.raises(ValueError, match='mode must be "min" or "max"'):
            self.build(metric="loss", mode="minimize")
        with pytest.raises(ValueError, match='mode must be "min" or "max"'):
            self.build().set_search_properties("loss", "maximum", self.space())

    def test_what_is_missing_is_named(self) -> None:
        searcher = self.build()
        name = type(searcher).__name__
        with pytest.raises(RuntimeError, match=f"{name} has no search space"):
            searcher.suggest("a")
        searcher.set_search_properties(None, None, self.space())
        with pytest.raises(RuntimeError, match=f"{name} needs a metric and a mode"):
            searcher.suggest("a")

    def test_a_mode_alone_means_the_anonymous_metric(self) -> None:
        searcher = self.build(mode="min")
        searcher.set_search_properties(None, None, self.space())
        searcher.suggest("a")
        assert searcher.metric == "_metric"

    def test_a_second_space_is_refused(self) -> None:
        searcher = self.start()
        assert searcher.set_search_properties("other", "max", {"z": uniform(0, 1)}) is False
        assert (searcher.metric, searcher.mode) == ("loss", "min")

    def test_what_the_library_cannot_express_is_named(self) -> None:
        with pytest.raises(ValueError, match="cannot express the function at 'sub/f'"):
            self.build().set_search_properties("loss", "min", {"sub": {"f": sample_from(lambda: 1)}})
        with pytest.raises(ValueError, match="cannot express the grid search at 'sub/g'"):
            self.build().set_search_properties("loss", "min", {"sub": {"g": grid_search([1])}})
        with pytest.raises(ValueError, match="'sub/a/b' contains a slash"):
            self.build().set_search_properties("loss", "min", {"sub": {"a/b": uniform(0, 1)}})
        if self.BAD_SPACE is not None:
            with pytest.raises(ValueError, match=r"cannot express the (parameter|choice)( at)? 'sub/bad'"):
                self.build().set_search_properties("loss", "min", self.BAD_SPACE)

    def test_it_is_a_searcher(self) -> None:
        assert isinstance(self.build(), Searcher)
