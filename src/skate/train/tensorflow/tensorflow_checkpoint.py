"""Checkpoints with a Keras model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.train._frameworks.framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

__all__ = ["TensorflowCheckpoint"]

_MODEL = "model.keras"


class TensorflowCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one model, in any format of Keras."""

    MODEL_FILENAME_KEY = "_model_filename"

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Preprocessor | None = None) -> TensorflowCheckpoint:
        """Write a model into a new temporary folder.

        Args:
            model: The model.
            preprocessor: The preprocessor of the model's data.
        """
        folder = _new_folder()
        model.save(str(Path(folder, _MODEL)))
        return cls._of(folder, _MODEL, preprocessor)

    @classmethod
    def from_h5(cls, file_path: str, *, preprocessor: Preprocessor | None = None) -> TensorflowCheckpoint:
        """Copy a model's `.h5` file into a new temporary folder.

        Args:
            file_path: The file.
            preprocessor: The preprocessor of the model's data.

        Raises:
            ValueError: The file does not exist.
        """
        if not Path(file_path).is_file():
            raise ValueError(f"the file {file_path} does not exist")
        folder = _new_folder()
        shutil.copy(file_path, folder)
        return cls._of(folder, Path(file_path).name, preprocessor)

    @classmethod
    def from_saved_model(
        cls, dir_path: str, *, preprocessor: Preprocessor | None = None
    ) -> TensorflowCheckpoint:
        """Copy a SavedModel into a new temporary folder.

        Args:
            dir_path: The SavedModel's folder.
            preprocessor: The preprocessor of the model's data.

        Raises:
            ValueError: The folder does not exist.
        """
        if not Path(dir_path).is_dir():
            raise ValueError(f"the folder {dir_path} does not exist")
        folder = _new_folder()
        shutil.copytree(dir_path, folder, dirs_exist_ok=True)
        return cls._of(folder, ".", preprocessor)

    @classmethod
    def _of(cls, folder: str, model: str, preprocessor: Preprocessor | None) -> TensorflowCheckpoint:
        checkpoint = cls(folder)
        checkpoint.update_metadata({cls.MODEL_FILENAME_KEY: model})
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint

    def get_model(self) -> Any:
        """Return the model.

        Raises:
            RuntimeError: This class did not create the checkpoint, and so the model's file is unknown.
        """
        name = self.get_metadata().get(self.MODEL_FILENAME_KEY)
        if name is None:
            raise RuntimeError(
                f"the model's file in {self.path} is unknown: create the checkpoint with from_model, from_h5 or "
                "from_saved_model"
            )
        tf = _optional.load("tensorflow", "TensorflowCheckpoint")
        with self.as_directory() as folder:
            return tf.keras.models.load_model(str(Path(folder, name)))


def _new_folder() -> str:
    return tempfile.mkdtemp(prefix="skate_checkpoint_")
