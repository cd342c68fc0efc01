"""The older names in `skate.air`: the session of a trial, and configurations that trainers and tuners share."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import air, tune
from skate.air import session
from skate.tune.callback import Callback
from skate.tune.impl.config import adapt_config
from skate.tune.result_grid import ResultGrid

Fit = Callable[..., ResultGrid]


def reporting(config: dict[str, Any]) -> None:
    start = session.get_checkpoint()
    assert start is None
    context = tune.get_context()
    assert session.get_trial_id() == context.get_trial_id()
    assert session.get_trial_dir() == context.get_trial_dir()
    assert session.get_experiment_name() == "experiment"
    assert (session.get_world_size(), session.get_world_rank()) == (1, 0)
    for step in range(5):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            checkpoint = tune.Checkpoint.from_directory(folder)
            session.report({"step": step}, checkpoint=checkpoint)


@pytest.mark.usefixtures("engine")
def test_the_session_of_a_trial_is_that_of_tune(fit: Fit) -> None:
    result = fit(reporting, run={"stop": {"training_iteration": 3}})[0]
    assert result.error is None
    assert result.metrics is not None
    assert result.metrics["step"] == 2
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert Path(folder, "step").read_text() == "2"


def test_the_session_needs_a_trial_or_a_training_function() -> None:
    with pytest.raises(RuntimeError, match=r"report\(\) works only inside"):
        session.report({"loss": 1})


class Counting(Callback):
    def __init__(self) -> None:
        self.results = 0

    def on_trial_result(self, *arguments: Any, **info: Any) -> None:
        self.results += 1


@pytest.mark.usefixtures("engine")
def test_a_tuner_takes_the_configuration_of_air(tmp_path: Path) -> None:
    counting = Counting()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = air.RunConfig(
            name="named",
            storage_path=str(tmp_path),
            stop={"training_iteration": 2},
            verbose=0,
            callbacks=[counting],
            checkpoint_config=air.CheckpointConfig(num_to_keep=1),
            failure_config=air.FailureConfig(fail_fast=True),
        )
    results = tune.Tuner(endless, run_config=config).fit()
    assert results.experiment_path == str(tmp_path / "named")
    assert results[0].metrics is not None
    assert results[0].metrics["training_iteration"] == 2
    assert counting.results == 2


def endless(config: dict[str, Any]) -> None:
    while True:
        tune.report({"loss": os.getpid()})


@pytest.mark.usefixtures("engine")
def test_two_tuners_with_an_unnamed_configuration_use_two_folders(tmp_path: Path) -> None:
    config = air.RunConfig(storage_path=str(tmp_path))
    paths = {tune.Tuner(constant, run_config=config).fit().experiment_path for _ in range(2)}
    assert len(paths) == 2


def constant(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": 1.0}


def test_settings_that_are_not_given_have_the_defaults_of_tune() -> None:
    assert adapt_config(air.CheckpointConfig()) == tune.CheckpointConfig()
    assert adapt_config(air.FailureConfig(max_failures=2)) == tune.FailureConfig(max_failures=2)
    assert adapt_config(air.RunConfig(storage_path="/a")) == tune.RunConfig(storage_path="/a", callbacks=[])
    assert adapt_config(None) is None
    given = tune.RunConfig(checkpoint_config=air.CheckpointConfig(num_to_keep=3))  # type: ignore[arg-type]
    assert given.checkpoint_config == tune.CheckpointConfig(num_to_keep=3)
