"""A checkpoint that is a model of LightGBM's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.train._framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

__all__ = ["LightGBMCheckpoint"]


class LightGBMCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one booster."""

    MODEL_FILENAME = "model.txt"

    @classmethod
    def from_model(
        cls, booster: Any, *, preprocessor: Preprocessor | None = None, path: str | None = None
    ) -> LightGBMCheckpoint:
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
        lightgbm = _optional.load("lightgbm", "LightGBMCheckpoint")
        with self.as_directory() as folder:
            return lightgbm.Booster(model_file=str(Path(folder, self.MODEL_FILENAME)))
