"""The callback for JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from skate.tune.experiment import Trial
from skate.tune.logger import JsonLoggerCallback


def test_the_configuration_of_a_trial_is_replaced(tmp_path: Path) -> None:
    trial = Trial("function")
    JsonLoggerCallback().update_config(trial, {"lr": 1.0})  # it has no folder yet
    trial.local_path = str(tmp_path)
    JsonLoggerCallback().update_config(trial, {"lr": np.float32(0.5), "kind": int})
    stored = json.loads((tmp_path / "params.json").read_text(encoding="utf-8"))
    assert stored == {"lr": 0.5, "kind": "<class 'int'>"}
