"""Run the tests of training on the engines that have workers: local, and with `--engine ray` on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from skate.train import CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig
from skate.train._views.views import SWITCH
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.plugins.sessions import declare_gap, gap_for
from tests.train.gaps import GAPS

HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize(
            "engine_name", metafunc.config.getoption("--engine") or ["local"], scope="module"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and (reason := gap_for(item, GAPS, HERE)):
            declare_gap(item, reason)


@pytest.fixture(autouse=True)
def restored_environment() -> Iterator[None]:
    """Undo changes of environment variables: frameworks that train in this process set OMP_NUM_THREADS and others."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture(autouse=True)
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no curves of the many small runs: it takes longer than they do."""
    monkeypatch.setenv(SWITCH, "0")


@pytest.fixture
def run_config(tmp_path: Path) -> Callable[..., RunConfig]:
    """Make settings of a run that is kept in the test's folder."""

    def make(
        name: str = "run", *, failures: int = 0, keep: CheckpointConfig | None = None, **options: Any
    ) -> RunConfig:
        return RunConfig(
            name=name,
            storage_path=str(tmp_path / "runs"),
            failure_config=FailureConfig(max_failures=failures),
            checkpoint_config=keep,
            **options,
        )

    return make


@pytest.fixture
def fit_with(run_config: Callable[..., RunConfig]) -> Callable[..., Result]:
    """Train with a trainer of some class and a function, on some workers."""

    def go(
        trainer: Callable[..., Any],
        function: Any,
        workers: int = 2,
        *,
        config: Any = None,
        run: RunConfig | None = None,
        **options: Any,
    ) -> Result:
        scaling = options.pop("scaling_config", None) or ScalingConfig(num_workers=workers)
        made = trainer(
            function,
            train_loop_config=config,
            scaling_config=scaling,
            run_config=run or run_config(),
            **options,
        )
        result: Result = made.fit()
        return result

    return go


@pytest.fixture
def fit(fit_with: Callable[..., Result]) -> Callable[..., Result]:
    """Train with a function on some workers, without any framework; modules about one have a `fit` of their own."""
    return partial(fit_with, DataParallelTrainer)
