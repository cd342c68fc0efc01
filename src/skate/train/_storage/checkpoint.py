"""Checkpoints: folders with the state of a model."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from skate.air import _arguments as arguments
from skate.train._storage import folders

_METADATA = ".metadata.json"


class Checkpoint:
    """A folder with a model's state, on this machine or in an object store.

    Args:
        path: The folder: a local path or a URI.
        filesystem: The filesystem of the path; determined by the path if not given.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = (pathlib.Path(folder) / "step").write_text("120")
        >>> checkpoint = Checkpoint.from_directory(folder)
        >>> with checkpoint.as_directory() as there:
        ...     (pathlib.Path(there) / "step").read_text()
        '120'
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: pafs.FileSystem | None = None) -> None:
        self.filesystem, self.path = folders.locate(path, filesystem, "filesystem")

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return a checkpoint for a folder on this machine, without copying it."""
        return cls(path, filesystem=pafs.LocalFileSystem())

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the checkpoint into a folder on this machine.

        Args:
            path: The folder, which is created if it is missing; a temporary one if not given.

        Returns:
            The folder's path.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
            StorageFullError: The disk is full; an OutOfDiskError and an OSError. The checkpoint is unchanged, and a
                folder that this call created is removed.
        """
        is_new = path is None or not os.path.isdir(arguments.path("path", path))
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="skate_checkpoint_")
        try:
            with folders.raise_storage_full(
                f"{self!r} does not fit on the disk of {target}: free some space and try again, or pass to_directory() "
                "a path on another disk; for as_directory(), set TMPDIR. The checkpoint itself is complete"
            ):
                os.makedirs(target, exist_ok=True)
                folders.copy(self.filesystem, self.path, pafs.LocalFileSystem(), target)
        except BaseException:
            if is_new:
                shutil.rmtree(target, ignore_errors=True)
            raise
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Provide the checkpoint as a folder on this machine, for the duration of a `with` block.

        A local checkpoint is provided in place, and must not be modified. A remote one is downloaded, and the copy is
        deleted after the block.
        """
        if folders.uses_local_paths(self.filesystem):
            if not os.path.isdir(self.path):
                raise FileNotFoundError(f"the checkpoint's folder does not exist: {self.path}")
            yield self.path
            return
        folder = self.to_directory()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the checkpoint; an empty dict if it has none."""
        try:
            with self.filesystem.open_input_stream(self._metadata) as stream:
                found: dict[str, Any] = json.loads(stream.read())
                return found
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata of the checkpoint, which is stored as JSON in its folder."""
        arguments.instance("metadata", metadata, dict, "a dictionary")
        arguments.as_json("metadata", metadata)
        text = json.dumps(metadata)
        if not folders.uses_local_paths(self.filesystem):
            with self.filesystem.open_output_stream(self._metadata) as stream:
                stream.write(text.encode())
            return
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"the checkpoint's folder does not exist: {self.path}")
        # Atomic: a reader finds either the old file or the new one.
        new = Path(f"{self._metadata}.{uuid.uuid4().hex}")
        new.write_text(text, encoding="utf-8")
        new.replace(self._metadata)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Add entries to the metadata of the checkpoint; existing entries of the same name are replaced."""
        arguments.instance("metadata", metadata, dict, "a dictionary")
        self.set_metadata({**self.get_metadata(), **metadata})

    @property
    def _metadata(self) -> str:
        return f"{self.path}/{_METADATA}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and (self.path, self.filesystem) == (
            other.path,
            other.filesystem,
        )

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(filesystem={self.filesystem.type_name}, path={self.path})"

    def __fspath__(self) -> str:
        raise TypeError(
            f"{self!r} is not a path: use `with checkpoint.as_directory() as folder` or checkpoint.to_directory()."
        )
