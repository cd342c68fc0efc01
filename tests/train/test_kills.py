"""Workers that are killed during training: the result must not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from skate.train import Result, RunConfig
from skate.train.torch import TorchTrainer
from tests.train import strikes

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


def test_killed_workers_learn_what_living_ones_learn(
    fit_with: Callable[..., Result], run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    def fit(name: str, planned: dict[int, Any]) -> Result:
        config = {"steps": 8, "strikes": planned, "scars": str(tmp_path / "scars")}
        return fit_with(TorchTrainer, strikes.learn, config=config, run=run_config(name, failures=2))

    (tmp_path / "scars").mkdir()
    undisturbed = fit("undisturbed", {})
    planned = {3: ("while a checkpoint is stored", [1]), 6: ("in the step", [0, 1])}
    killed = fit("killed", planned)
    assert strikes.scars(tmp_path / "scars") == ["3-1", "6-0", "6-1"]
    assert strikes.learned(killed) == strikes.learned(undisturbed)
    assert strikes.learned(killed)[0] == 7
    names = sorted(path.name for path in Path(killed.path).glob("checkpoint_*"))
    assert names == [Path(checkpoint.path).name for checkpoint, _ in killed.best_checkpoints or []]
