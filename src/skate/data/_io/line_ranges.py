"""Ranges of lines: one large file of lines, read by several tasks."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from skate.data._io.paths import SourceFile

# A range is not worth a task below this.
_MIN_BYTES = 8 << 20
_STEP = 1 << 16


def split_files(
    files: Sequence[SourceFile],
    parts: int,
    can_divide: Callable[[SourceFile], bool],
    least: int | None = None,
) -> list[SourceFile]:
    """Return files, the large ones as several ranges, so that about so many tasks have something to read.

    Args:
        files: What is read.
        parts: How many tasks are wanted.
        can_divide: Tells whether a file can be read from any of its lines on.
        least: Bytes of a range at least.
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
    """Return where the first line starts that does so at an offset or behind it."""
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
    """The next bytes of a file, as if they were all."""

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
