"""The output of trials in files, and stopping criteria that are not reported."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.result_grid import ResultGrid

pytestmark = pytest.mark.usefixtures("engine")
ENGINES = ["local"]
Fit = Callable[..., ResultGrid]


def talk(config: dict[str, Any]) -> dict[str, Any]:
    print(f"out {config['x']}")
    print(f"err {config['x']}", file=sys.stderr)
    logging.getLogger("a.library").warning("log %d", config["x"])
    return {"x": config["x"]}


def read(result: Any, name: str) -> list[str]:
    return Path(result.path, name).read_text(encoding="utf-8").splitlines()


def test_each_trial_has_files_with_its_own_output(fit: Fit) -> None:
    results = fit(
        talk, {"x": tune.grid_search([1, 2, 3])}, run={"log_to_file": True}, max_concurrent_trials=1
    )
    for result in results:
        x = result.metrics["x"]
        assert read(result, "stdout") == [f"out {x}"]
        assert read(result, "stderr") == [f"err {x}", f"log {x}"]


def test_the_files_may_have_other_names(fit: Fit) -> None:
    (both,) = fit(talk, {"x": 1}, run={"name": "one", "log_to_file": "all.log"})
    assert sorted(read(both, "all.log")) == ["err 1", "log 1", "out 1"]
    (result,) = fit(talk, {"x": 1}, run={"name": "two", "log_to_file": (None, "errors")})
    assert read(result, "errors") == ["err 1", "log 1"]
    assert not Path(result.path, "stdout").exists()
    with pytest.raises(ValueError, match="`log_to_file` must be True, False"):
        tune.RunConfig(log_to_file=3)  # type: ignore[arg-type]


def test_a_failed_trial_leaves_the_streams_to_the_next(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        print(f"out {config['x']}")
        if config["x"] == 1:
            raise ValueError("broken")

    results = fit(
        function, {"x": tune.grid_search([1, 2])}, run={"log_to_file": True}, max_concurrent_trials=1
    )
    assert [read(result, "stdout") for result in results] == [["out 1"], ["out 2"]]


def test_a_criterion_that_is_not_reported_is_named_once(fit: Fit, caplog: pytest.LogCaptureFixture) -> None:
    def function(config: dict[str, Any]) -> None:
        for step in range(5):
            tune.report({"eval": {"loss": step}})

    with caplog.at_level(logging.WARNING, "skate.tune"):
        (result,) = fit(function, run={"stop": {"los": 1, "eval/loss": 3}})
    assert result.error is None
    assert result.metrics["eval"]["loss"] == 3
    assert caplog.text.count("'los'") == 1
    assert "the trial runs to its end" in caplog.text


def test_a_task_that_fits_no_bundle_of_the_trial_fails_at_once(fit: Fit) -> None:
    import skate

    def function(config: dict[str, Any]) -> dict[str, Any]:
        @skate.remote(num_cpus=config["cpus"])
        def child() -> int:
            return 1

        return {"value": skate.get(child.remote())}

    trainable = tune.with_resources(function, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}]))
    results = fit(trainable, {"cpus": tune.grid_search([1, 2])})
    assert results[0].metrics["value"] == 1
    assert results.num_errors == 1
    assert "no bundle of its placement group" in str(results.errors[0]) or "cannot fit" in str(
        results.errors[0]
    )
