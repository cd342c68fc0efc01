"""A checkpoint that is a model of XGBoost's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.train._framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

__all__ = ["XGBoostCheckpoint"]


class XGBoostCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one booster."""

    MODEL_FILENAME = "model.json"

    @classmethod
    def from_model(
        cls, booster: Any, *, preprocessor: Preprocessor | None = None, path: str | None = None
    ) -> XGBoostCheckpoint:
        """Write a booster into a folder.

        Args:
            booster: The model.
            preprocessor: What its data was prepared with.
            path: The folder; a new temporary one if not given.
        """
        folder = path or tempfile.mkdtemp(prefix="skate_checkpoint_")
        Path(folder).mkdir(parents=True, exist_ok=True)
        booster.save_model(str(Path(folder, cls.MODEL_FILENAME)))
        checkpoint = cls(folder)
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint

    def get_model(self) -> Any:
        """Return the booster."""
        booster = _optional.load("xgboost", "XGBoostCheckpoint").Booster()
        with self.as_directory() as folder:
            booster.load_model(str(Path(folder, self.MODEL_FILENAME)))
        return booster
