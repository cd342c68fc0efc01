"""Metric values of one process, stored so that other processes can read them without a request.

A `CellFile` is mapped into memory: recording a value is one store into the mapping, which survives even if the
process is killed immediately afterwards. No process polls, flushes or runs a thread. The layout, in words of eight
bytes:

    magic | bytes in use | entry | entry | …
    entry:  u32 length of the key, u32 number of cells | key (JSON, padded) | cells (doubles) …

The number of bytes in use is written last, so a reader sees an entry completely or not at all. The owner holds a
lock on its file while it lives; a process that acquires the lock knows that the owner has ended.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["SUFFIX", "CellFile", "Entry", "MemoryCells", "is_alive", "read_entries"]

SUFFIX: Final = ".cells"
_MAGIC: Final = b"SKMETR01"
_HEAD_BYTES: Final = 16
_ENTRY: Final = struct.Struct("=II")
_WORD: Final = 8
_USED: Final = 1  # index of the word that holds the number of bytes in use
_FIRST_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its values."""

    key: Any
    values: tuple[float, ...]


class _GrowingBuffer:
    """Append entries to a buffer that subclasses can enlarge.

    Attributes:
        numbers: The whole buffer as doubles; `add` may replace it.
    """

    numbers: memoryview[float]
    _bytes: memoryview[int]
    _words: memoryview[int]

    def _use(self, buffer: Any) -> None:
        self._bytes = memoryview(buffer)
        self.numbers = self._bytes.cast("d")
        self._words = self._bytes.cast("Q")
        if self._words[_USED] == 0:
            self._bytes[:_WORD] = _MAGIC
            self._words[_USED] = _HEAD_BYTES

    def _release(self) -> None:
        for view in (self.numbers, self._words, self._bytes):
            view.release()

    def _enlarge(self, size: int) -> None:
        raise NotImplementedError

    def add(self, key: Any, values: list[float]) -> int:
        """Append an entry and return the position of its first cell in `numbers`."""
        text = json.dumps(key, separators=(",", ":")).encode()
        padded = -(-len(text) // _WORD) * _WORD
        start = self._words[_USED]
        end = start + _ENTRY.size + padded + _WORD * len(values)
        if end > len(self._bytes):
            self._enlarge(max(2 * len(self._bytes), -(-end // _FIRST_SIZE) * _FIRST_SIZE))
        _ENTRY.pack_into(self._bytes, start, len(text), len(values))
        at = start + _ENTRY.size
        self._bytes[at : at + len(text)] = text
        first = (at + padded) // _WORD
        for offset, value in enumerate(values):
            self.numbers[first + offset] = value
        self._words[_USED] = end
        return first


class MemoryCells(_GrowingBuffer):
    """Cells in private memory."""

    def __init__(self) -> None:
        self._buffer = bytearray(_FIRST_SIZE)
        self._use(self._buffer)

    def _enlarge(self, size: int) -> None:
        larger = bytearray(size)
        larger[: len(self._buffer)] = self._buffer
        self._release()
        self._buffer = larger
        self._use(larger)

    def close(self) -> None:
        """Release the memory."""
        self._release()

    def entries(self) -> Iterator[Entry]:
        """Yield all entries."""
        return read_entries(bytes(self._buffer))


class CellFile(_GrowingBuffer):
    """Cells in a file in `folder`, named after this process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        # Created under another name, so that readers never see an unlocked file.
        newborn = self.path.with_suffix(".new")
        self._file = os.open(newborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._reserve(0, _FIRST_SIZE)
            self._map = mmap.mmap(self._file, _FIRST_SIZE)
        except BaseException:
            os.close(self._file)
            newborn.unlink()
            raise
        self._use(self._map)
        newborn.rename(self.path)

    def _reserve(self, start: int, size: int) -> None:
        # A hole in a mapped file would kill the process on a full disk; writing raises an error instead.
        os.pwrite(self._file, bytes(size - start), start)

    def _enlarge(self, size: int) -> None:
        self._reserve(len(self._bytes), size)
        self._release()
        self._map.close()
        self._map = mmap.mmap(self._file, size)
        self._use(self._map)

    def close(self) -> None:
        """Close the file and keep it; its owner counts as ended from now on."""
        self._release()
        self._map.close()
        os.close(self._file)


def is_alive(file: int) -> bool:
    """Return whether the process that owns the open cell file is running."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def read_entries(data: bytes) -> Iterator[Entry]:
    """Yield the entries in the bytes of a cell file."""
    if data[:_WORD] != _MAGIC:
        return
    (used,) = struct.unpack_from("=Q", data, _WORD)
    at = _HEAD_BYTES
    while at < used:
        length, count = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        key = json.loads(data[at : at + length])
        at += -(-length // _WORD) * _WORD
        yield Entry(key, struct.unpack_from(f"={count}d", data, at))
        at += _WORD * count
