"""Run the tests of Tune on the engines: inline and local, and with `--engine ray` on Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from tests.conftest import ENGINES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        usual = getattr(metafunc.module, "ENGINES", ENGINES)
        metafunc.parametrize("engine_name", metafunc.config.getoption("--engine") or usual, scope="module")


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., tune.ResultGrid]:
    """Run an experiment that is stored in the test's folder."""

    def go(
        trainable: Any,
        space: dict[str, Any] | None = None,
        *,
        run: dict[str, Any] | None = None,
        **options: Any,
    ) -> tune.ResultGrid:
        config = tune.RunConfig(storage_path=str(tmp_path), **{"name": "experiment", **(run or {})})
        return tune.Tuner(
            trainable, param_space=space, tune_config=tune.TuneConfig(**options), run_config=config
        ).fit()

    return go
