"""A checkpoint that is one model of a framework, with the preprocessor of its data."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from skate.train._checkpoint import Checkpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

_TEXT, _BYTES = "preprocessor", "preprocessor_bytes"  # under which names it stands in the metadata


class FrameworkCheckpoint(Checkpoint):
    """A checkpoint with one model, and perhaps with a preprocessor, which is kept in its metadata."""

    def get_preprocessor(self) -> Preprocessor | None:
        """Return the preprocessor that was kept with the model; None if there is none.

        It is read with pickle, which can run code: for checkpoints that you trust.
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
        """Keep a preprocessor with the model."""
        saved = preprocessor.serialize()
        if isinstance(saved, str):
            self.update_metadata({_TEXT: saved})
        else:
            self.update_metadata({_BYTES: base64.b64encode(saved).decode("ascii")})
