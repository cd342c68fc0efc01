"""Byte ranges of large text files, so that several tasks can read one file."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from skate.data._io.paths import SourceFile

# A smaller range is not worth a task.
_MIN_BYTES = 8 << 20
_STEP = 1 << 16


def split_files(
    files: Sequence[SourceFile],
    parts: int,
    can_divide: Callable[[SourceFile], bool],
    least: int | None = None,
) -> list[SourceFile]:
    """Return the files, with large ones divided into ranges to occupy about `parts` tasks.

    Args:
        files: The files to read.
        parts: The desired number of tasks.
        can_divide: Return whether a file can be read from the start of any line.
        least: Minimum size of a range, in bytes.
    """
    total = sum(file.size or 0 for file in files)
    length = max(least or _MIN_BYTES, -(-total // max(1, parts)))
    return [part for file in files for part in _split(file, length, can_divide)]


def open_range(filesystem: pafs.FileSystem, file: SourceFile) -> pa.NativeFile:
    """Open the lines of a file that start within its range."""
    assert file.stop is not None
    source = filesystem.open_input_file(file.path)
    size = source.size()
    begin, end = (_line_start(source, offset, size) for offset in (file.start, file.stop))
    source.seek(begin)
    return pa.PythonFile(_Range(source, end - begin), mode="r")


def _split(file: SourceFile, length: int, can_divide: Callable[[SourceFile], bool]) -> Iterator[SourceFile]:
    if file.size is None or file.size < 2 * length or not can_divide(file):
        yield file
        return
    count = round(file.size / length)
    borders = [file.size * number // count for number in range(count + 1)]
    for start, stop in itertools.pairwise(borders):
        yield dataclasses.replace(file, start=start, stop=stop)


def _line_start(source: pa.NativeFile, offset: int, size: int) -> int:
    """Return the position of the first line that starts at or after an offset."""
    if offset == 0 or offset >= size:
        return min(offset, size)
    position = offset - 1
    source.seek(position)
    while data := source.read(_STEP):
        found = int(data.find(b"\n"))
        if found >= 0:
            return position + found + 1
        position += len(data)
    return size


class _Range(io.RawIOBase):
    """A raw stream of the next bytes of a file."""

    def __init__(self, source: pa.NativeFile, length: int) -> None:
        self._source = source
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._source.close()
        super().close()
