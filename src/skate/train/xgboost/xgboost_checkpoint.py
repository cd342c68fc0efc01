"""Checkpoints with an XGBoost model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.train._frameworks.framework_checkpoint import BoosterCheckpoint

__all__ = ["XGBoostCheckpoint"]


class XGBoostCheckpoint(BoosterCheckpoint):
    """A checkpoint with one booster."""

    MODEL_FILENAME = "model.json"

    def get_model(self) -> Any:
        """Return the booster."""
        booster = _optional.load("xgboost", "XGBoostCheckpoint").Booster()
        with self.as_directory() as folder:
            booster.load_model(str(Path(folder, self.MODEL_FILENAME)))
        return booster
