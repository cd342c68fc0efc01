"""A folder that a model can be taken from again."""

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
        filesystem: The filesystem of the path; found by the path if not given.

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
        self.filesystem, self.path = folders.located(path, filesystem, "filesystem")

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return a checkpoint of a folder on this machine, which is not copied."""
        return cls(path, filesystem=pafs.LocalFileSystem())

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the checkpoint into a folder on this machine.

        Args:
            path: The folder, which is made if it is missing; a temporary one if not given.

        Returns:
            The folder's path.

        Raises:
            FileNotFoundError: The checkpoint is not there.
            StorageFullError: The disk is full; an OutOfDiskError and an OSError. The checkpoint is as it was, and a
                folder that was not there before is not there now.
        """
        is_new = path is None or not os.path.isdir(arguments.path("path", path))
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="skate_checkpoint_")
        try:
            with folders.full_disk_raises(
                f"{self!r} does not fit on the disk of {target}: free some space and try again, or give to_directory() "
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
        """Give the checkpoint as a folder on this machine, for the time of a `with` block.

        A folder that is here already is given as it is: it must not be changed. Another is fetched, and deleted
        after the block.
        """
        if folders.is_here(self.filesystem):
            if not os.path.isdir(self.path):
                raise FileNotFoundError(f"the checkpoint's folder is gone: {self.path}")
            yield self.path
            return
        folder = self.to_directory()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def get_metadata(self) -> dict[str, Any]:
        """Return what has been noted about the checkpoint; an empty dict if nothing has."""
        try:
            with self.filesystem.open_input_stream(self._metadata) as stream:
                found: dict[str, Any] = json.loads(stream.read())
                return found
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Note something about the checkpoint, in place of what was noted; it is kept as JSON in its folder."""
        arguments.instance("metadata", metadata, dict, "a dictionary")
        arguments.as_json("metadata", metadata)
        text = json.dumps(metadata)
        if not folders.is_here(self.filesystem):
            with self.filesystem.open_output_stream(self._metadata) as stream:
                stream.write(text.encode())
            return
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"the checkpoint's folder is gone: {self.path}")
        # A reader finds the old or the new, and never a half.
        new = Path(f"{self._metadata}.{uuid.uuid4().hex}")
        new.write_text(text, encoding="utf-8")
        new.replace(self._metadata)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Note more about the checkpoint; what has the same name is replaced."""
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
            f"{self!r} is no path: use `with checkpoint.as_directory() as folder` or checkpoint.to_directory()."
        )
