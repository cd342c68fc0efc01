"""Checks of the arguments of `report`."""

from __future__ import annotations

import enum
import os
from typing import Any

from skate.air import _arguments as arguments
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint


class CheckpointUploadMode(enum.Enum):
    """When a reported checkpoint is copied to the run's storage."""

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def _default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC


def check_checkpoint(checkpoint: Any, *, is_written: bool) -> None:
    """Check that the checkpoint of a report has a readable folder.

    Args:
        checkpoint: The given value.
        is_written: Whether the folder must exist already. A `checkpoint_upload_fn` may write it; a checkpoint that the
            caller stores may be written by another worker, or not at all if only the metrics matter.

    Raises:
        TypeError: It is no Checkpoint.
        FileNotFoundError: Its folder does not exist.
        NotADirectoryError: It is a file.
        PermissionError: The folder, or a file in it, cannot be read.
    """
    if checkpoint is None:
        return
    if not isinstance(checkpoint, Checkpoint):
        advice = (
            f"wrap the folder: Checkpoint.from_directory({os.fspath(checkpoint)!r})"
            if isinstance(checkpoint, str | os.PathLike)
            else "write the state to files in a folder, and pass Checkpoint.from_directory(folder)"
        )
        raise TypeError(
            f"`checkpoint` must be a skate.train.Checkpoint or None, got {arguments.shown(checkpoint)}: {advice}."
        )
    if not is_written:
        return
    try:
        folders.check_readable(checkpoint.filesystem, checkpoint.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise type(error)(
            f"`checkpoint` is {checkpoint!r}, which cannot be stored: {error}. Write the state to the folder before "
            "the call, and keep the folder until it is stored."
        ) from error


def check_upload(mode: Any, deletes: Any, upload: Any) -> None:
    """Check the arguments of `report` about the upload of a checkpoint.

    Raises:
        TypeError: An argument has the wrong type.
    """
    if not isinstance(mode, CheckpointUploadMode):
        known = ", ".join(str(each) for each in CheckpointUploadMode)
        arguments.refuse("checkpoint_upload_mode", f"one of {known}", mode)
    arguments.instance("delete_local_checkpoint_after_upload", deletes, bool, "True, False", optional=True)
    arguments.function("checkpoint_upload_fn", upload, optional=True)


def checkpoint_name(name: Any) -> str | None:
    """Return the name of a reported checkpoint; None if the run chooses it.

    Raises:
        TypeError: It is no string.
        ValueError: It names no folder below the run's folder.
    """
    if not name and isinstance(name, str | None):
        return None
    return arguments.folder_name("checkpoint_dir_name", name)
