"""The arguments of `report`: a mistake in them raises where `report` is called."""

from __future__ import annotations

import enum
import os
from typing import Any

from skate.air import _arguments as arguments
from skate.air import _names
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint


class CheckpointUploadMode(enum.Enum):
    """When a reported checkpoint is brought to the run's storage."""

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def _default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC


def check_checkpoint(checkpoint: Any, *, is_written: bool) -> None:
    """Check that `report` was given a checkpoint whose folder can be read.

    Args:
        checkpoint: What it was given.
        is_written: Whether the folder has to be there already: a `checkpoint_upload_fn` may write it.

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
    """Check how `report` is to store a checkpoint.

    Raises:
        TypeError: An argument has another type.
    """
    if not isinstance(mode, CheckpointUploadMode):
        known = ", ".join(str(each) for each in CheckpointUploadMode)
        arguments.refuse("checkpoint_upload_mode", f"one of {known}", mode)
    arguments.instance("delete_local_checkpoint_after_upload", deletes, bool, "True, False", optional=True)
    arguments.function("checkpoint_upload_fn", upload, optional=True)


def checkpoint_name(name: Any) -> str | None:
    """Return the name that `report` was given for a checkpoint; None if the run chooses it.

    Raises:
        TypeError: It is no text.
        ValueError: It names no folder below the run's.
    """
    if not name and isinstance(name, str | None):
        return None
    return _names.check_folder("checkpoint_dir_name", name)
