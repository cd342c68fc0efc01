"""Checkpoints with one model of a framework and the preprocessor of its data."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skate.train._storage.checkpoint import Checkpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

_TEXT, _BYTES = "preprocessor", "preprocessor_bytes"  # its keys in the metadata


class FrameworkCheckpoint(Checkpoint):
    """A checkpoint with one model and, optionally, a preprocessor in its metadata."""

    def get_preprocessor(self) -> Preprocessor | None:
        """Return the preprocessor that is stored with the model; None if there is none.

        It is read with pickle, which can run code: use it only on checkpoints that you trust.
        """
        from skate.data import Preprocessor
        from skate.data.preprocessor import SerializablePreprocessorBase

        metadata = self.get_metadata()
        if _TEXT in metadata:
            return Preprocessor.deserialize(metadata[_TEXT])
        if _BYTES in metadata:
            return SerializablePreprocessorBase.deserialize(base64.b64decode(metadata[_BYTES]))
        return None

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Store a preprocessor with the model."""
        saved = preprocessor.serialize()
        if isinstance(saved, str):
            self.update_metadata({_TEXT: saved})
        else:
            self.update_metadata({_BYTES: base64.b64encode(saved).decode("ascii")})


class BoosterCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one booster."""

    MODEL_FILENAME = "model"

    @classmethod
    def from_model(
        cls, booster: Any, *, preprocessor: Preprocessor | None = None, path: str | None = None
    ) -> Self:
        """Write a booster into a folder.

        Args:
            booster: The model.
            preprocessor: The preprocessor of the model's data.
            path: The folder; a new temporary one if not given.
        """
        folder = path or tempfile.mkdtemp(prefix="skate_checkpoint_")
        Path(folder).mkdir(parents=True, exist_ok=True)
        booster.save_model(str(Path(folder, cls.MODEL_FILENAME)))
        checkpoint = cls(folder)
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint
