"""Operations on folders of any filesystem."""

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
_PARALLEL_COPIES = 8  # files, to hide the latency of object stores


def locate(
    path: Any, filesystem: Any, filesystem_name: str = "storage_filesystem"
) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a user's folder, and the path of the folder in that filesystem.

    Args:
        path: The folder: a local path or a URI.
        filesystem: A pyarrow or fsspec filesystem; determined by the path if None.
        filesystem_name: The name of that parameter, for the error.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: No filesystem is known for the path.
    """
    filesystems.check(filesystem_name, filesystem)
    return filesystems.resolve(arguments.path("path", path), filesystem)


def uses_local_paths(filesystem: pafs.FileSystem) -> bool:
    """Return whether `open` and `os` accept the paths of a filesystem; those of a local subtree are relative to it."""
    return isinstance(filesystem, pafs.LocalFileSystem)


def real_path(filesystem: pafs.FileSystem, path: str) -> str:
    """Return a path without a slash at the end, `..` and, on a local disk, symbolic links."""
    return os.path.realpath(path) if uses_local_paths(filesystem) else posixpath.normpath(path)


def copy(
    source: pafs.FileSystem,
    origin: str,
    target: pafs.FileSystem,
    destination: str,
    moved: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy the contents of a folder into another folder.

    Args:
        source: The filesystem of the folder to copy.
        origin: The folder to copy.
        target: The filesystem to copy to.
        destination: The folder to copy to.
        moved: Called from several threads with the number of bytes just copied.

    Raises:
        FileNotFoundError: The folder to copy does not exist.
    """
    info = source.get_file_info(origin)
    if info.type == pafs.FileType.NotFound and not _has_files(source, origin):
        raise FileNotFoundError(f"the folder {origin} does not exist")
    found = source.get_file_info(pafs.FileSelector(origin, recursive=True))
    target.create_dir(destination, recursive=True)
    places = {each: posixpath.join(destination, relative(each.path, origin)) for each in found}
    for each, place in places.items():
        if each.type == pafs.FileType.Directory:
            target.create_dir(place, recursive=True)
    files = {each.path: place for each, place in places.items() if each.type == pafs.FileType.File}
    with ThreadPoolExecutor(_PARALLEL_COPIES, thread_name_prefix="skate-copy") as pool:
        copies = [pool.submit(_copy_file, source, *each, target, moved) for each in files.items()]
    for each in copies:
        each.result()


def relative(path: str, folder: str) -> str:
    """Return a path relative to a folder. Some filesystems list paths with a slash in front, and accept them without.

    >>> relative("/runs/one/checkpoint/", "runs/one")
    'checkpoint'
    """
    return posixpath.relpath(f"/{path.strip('/')}", f"/{folder.strip('/')}")


def check_readable(filesystem: pafs.FileSystem, path: str) -> None:
    """Check that a folder exists and that this process may read all its files.

    Raises:
        FileNotFoundError: The folder does not exist.
        NotADirectoryError: The path is a file.
        PermissionError: The folder, or a file in it, cannot be read. Checked for local paths only.
    """
    info = filesystem.get_file_info(path)
    if info.type == pafs.FileType.NotFound and not _has_files(filesystem, path):
        raise FileNotFoundError(f"the folder {path} does not exist")
    if info.type == pafs.FileType.File:
        raise NotADirectoryError(f"{path} is a file, not a folder")
    if not uses_local_paths(filesystem):
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
    if source == target and not uses_local_paths(source):
        target.copy_file(origin, destination)  # faster, because the data stays in the store
        return
    # Without compression=None, a .gz file would be decompressed and compressed again.
    with (
        source.open_input_stream(origin, compression=None) as reader,
        target.open_output_stream(destination, compression=None) as writer,
    ):
        while chunk := reader.read_buffer(_CHUNK):
            writer.write(chunk)
            moved(chunk.size)


def delete(filesystem: pafs.FileSystem, path: str) -> None:
    """Delete a folder, if it exists."""
    try:
        filesystem.delete_dir(path)
    except FileNotFoundError:
        return


@contextlib.contextmanager
def raise_storage_full(message: str) -> Iterator[None]:
    """Replace the operating system's error for a full disk or quota.

    Args:
        message: The text of the error: what failed, and what to do.

    Raises:
        StorageFullError: The disk is full, or the quota is exhausted.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or isinstance(error, StorageFullError):
            raise
        raise StorageFullError(error.errno, message) from error


def write(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write a small file atomically: a reader finds either the old content or the new."""
    if uses_local_paths(filesystem):
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
    with filesystem.open_output_stream(path) as stream:  # an object becomes visible when it is complete
        stream.write(content)


def replace(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write a small file that is read while it is replaced: a reader, and a crash, find either content as a whole."""
    if uses_local_paths(filesystem) or filesystems.commits_on_close(filesystem):
        write(filesystem, path, content)
        return
    new = f"{path}.new"
    write(filesystem, new, content)
    filesystem.move(new, path)


def append(path: str, content: bytes) -> None:
    """Append to a local file: everything, or nothing if the write fails."""
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
    """Return the content of a small file; None if it does not exist."""
    try:
        with filesystem.open_input_stream(path) as stream:
            content: bytes = stream.read()
            return content
    except FileNotFoundError:
        return None


def _has_files(filesystem: pafs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True)))
