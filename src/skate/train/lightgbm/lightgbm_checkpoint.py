"""Checkpoints with a LightGBM model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.train._frameworks.framework_checkpoint import BoosterCheckpoint

__all__ = ["LightGBMCheckpoint"]


class LightGBMCheckpoint(BoosterCheckpoint):
    """A checkpoint with one booster."""

    MODEL_FILENAME = "model.txt"

    def get_model(self) -> Any:
        """Return the booster."""
        lightgbm = _optional.load("lightgbm", "LightGBMCheckpoint")
        with self.as_directory() as folder:
            return lightgbm.Booster(model_file=str(Path(folder, self.MODEL_FILENAME)))
