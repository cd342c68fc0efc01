"""Copying and deleting folders, wherever they are."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.fs as pafs

from skate.air import _arguments as arguments
from skate.air import _filesystems as filesystems
from skate.train._failures.errors import StorageFullError

_CHUNK = 8 << 20  # bytes
_AT_ONCE = 8  # files: a store far away answers several requests in the time of one


def located(
    path: Any, filesystem: Any, filesystem_name: str = "storage_filesystem"
) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a folder that a user gave, and the folder as that filesystem wants it.

    Args:
        path: The folder: a local path or a URI.
        filesystem: A pyarrow or fsspec filesystem to use; found by the path if it is None.
        filesystem_name: How the user calls that parameter, for the error.

    Raises:
        TypeError: One of them has another type.
        ValueError: No filesystem is known for the path.
    """
    filesystems.check(filesystem_name, filesystem)
    return filesystems.resolve(arguments.path("path", path), filesystem)


def is_here(filesystem: pafs.FileSystem) -> bool:
    """Whether a filesystem's paths are those of this machine, for `open` and `os`: a part of a local one has others."""
    return isinstance(filesystem, pafs.LocalFileSystem)


def copy(
    source: pafs.FileSystem,
    origin: str,
    target: pafs.FileSystem,
    destination: str,
    moved: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy what is in a folder into another.

    Args:
        source: Where it is.
        origin: The folder.
        target: Where it goes.
        destination: The folder there.
        moved: Told, from several threads, of bytes that have been copied while the others still are.

    Raises:
        FileNotFoundError: The folder to copy is not there.
    """
    info = source.get_file_info(origin)
    if info.type == pafs.FileType.NotFound and not _has_files(source, origin):
        raise FileNotFoundError(f"there is no folder {origin}")
    found = source.get_file_info(pafs.FileSelector(origin, recursive=True))
    target.create_dir(destination, recursive=True)
    places = {
        each: posixpath.join(destination, posixpath.relpath(each.path.rstrip("/"), origin)) for each in found
    }
    for each, place in places.items():
        if each.type == pafs.FileType.Directory:
            target.create_dir(place, recursive=True)
    files = {each.path: place for each, place in places.items() if each.type == pafs.FileType.File}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="skate-copy") as pool:
        copies = [pool.submit(_copy_file, source, *each, target, moved) for each in files.items()]
    for each in copies:
        each.result()


def check_readable(filesystem: pafs.FileSystem, path: str) -> None:
    """Check that a folder is there, and that this process may read all that is in it.

    Raises:
        FileNotFoundError: It is not there.
        NotADirectoryError: It is a file.
        PermissionError: It, or something in it, must not be read; on this machine only.
    """
    info = filesystem.get_file_info(path)
    if info.type == pafs.FileType.NotFound and not _has_files(filesystem, path):
        raise FileNotFoundError(f"there is no folder {path}")
    if info.type == pafs.FileType.File:
        raise NotADirectoryError(f"{path} is a file, not a folder")
    if not is_here(filesystem):
        return
    for folder, _, files in os.walk(path, onerror=_raise):
        for name in files:
            found = os.path.join(folder, name)
            if os.path.exists(found) and not os.access(found, os.R_OK, effective_ids=True):
                raise PermissionError(f"{found} cannot be read")


def _raise(error: OSError) -> None:
    raise error


def _copy_file(
    source: pafs.FileSystem,
    origin: str,
    destination: str,
    target: pafs.FileSystem,
    moved: Callable[[int], None],
) -> None:
    if source == target and not is_here(source):
        target.copy_file(origin, destination)  # within the store, which is faster than through here
        return
    # As it is: else what ends in .gz would be unpacked and packed again.
    with (
        source.open_input_stream(origin, compression=None) as reader,
        target.open_output_stream(destination, compression=None) as writer,
    ):
        while chunk := reader.read_buffer(_CHUNK):
            writer.write(chunk)
            moved(chunk.size)


def delete(filesystem: pafs.FileSystem, path: str) -> None:
    """Delete a folder, if it is there."""
    try:
        filesystem.delete_dir(path)
    except FileNotFoundError:
        return


@contextlib.contextmanager
def full_disk_raises(message: str) -> Iterator[None]:
    """Say what to do where the block meets a full disk, or the end of a quota.

    Args:
        message: What could not be done, and what to do.

    Raises:
        StorageFullError: In place of the operating system's error.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or isinstance(error, StorageFullError):
            raise
        raise StorageFullError(error.errno, message) from error


def write(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write a small file so that a reader finds the old content or the new, and never a half."""
    if is_here(filesystem):
        new = f"{path}.new"
        try:
            with open(new, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:
            if os.path.isfile(new):
                os.unlink(new)
            raise
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
