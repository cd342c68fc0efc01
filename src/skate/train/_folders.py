"""Copying and deleting folders, wherever they are."""

from __future__ import annotations

import os

import pyarrow.fs as pafs


def is_here(filesystem: pafs.FileSystem) -> bool:
    """Whether a filesystem's paths are those of this machine, for `open` and `os`: a part of a local one has others."""
    return isinstance(filesystem, pafs.LocalFileSystem)


def copy(source: pafs.FileSystem, origin: str, target: pafs.FileSystem, destination: str) -> int:
    """Copy what is in a folder into another, and return the number of bytes.

    Raises:
        FileNotFoundError: The folder to copy is not there.
    """
    info = source.get_file_info(origin)
    if info.type == pafs.FileType.NotFound and not _has_files(source, origin):
        raise FileNotFoundError(f"there is no folder {origin}")
    pafs.copy_files(
        origin, destination, source_filesystem=source, destination_filesystem=target, use_threads=True
    )
    files = source.get_file_info(pafs.FileSelector(origin, recursive=True))
    return sum(file.size or 0 for file in files if file.type == pafs.FileType.File)


def delete(filesystem: pafs.FileSystem, path: str) -> None:
    """Delete a folder, if it is there."""
    try:
        filesystem.delete_dir(path)
    except FileNotFoundError:
        return


def write(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write a small file so that a reader finds the old content or the new, and never a half."""
    if is_here(filesystem):
        new = f"{path}.new"
        with open(new, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
        return
    with filesystem.open_output_stream(path) as stream:  # an object appears when it is complete
        stream.write(content)


def append(path: str, content: bytes) -> None:
    """Append to a file on this machine: all of it, or nothing if that fails."""
    before = os.path.getsize(path) if os.path.exists(path) else 0
    with open(path, "ab", buffering=0) as stream:
        try:
            written = 0
            while written < len(content):
                written += stream.write(content[written:])
        except OSError:
            if os.path.isfile(path):
                stream.truncate(before)
            raise


def read(filesystem: pafs.FileSystem, path: str) -> bytes | None:
    """Return what a small file holds; None if it is not there."""
    try:
        with filesystem.open_input_stream(path) as stream:
            content: bytes = stream.read()
            return content
    except FileNotFoundError:
        return None


def _has_files(filesystem: pafs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True)))
