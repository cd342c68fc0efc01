"""Event files for TensorBoard, written without TensorFlow or TensorBoard.

An event file is a TFRecord file of `Event` messages. A scalar needs only a few of their fields, which are encoded here:
importing a library for it takes seconds, and loads torch or TensorFlow (ADR 20).
"""

from __future__ import annotations

import io
import os
import posixpath
import socket
import struct
import time
from collections.abc import Mapping
from typing import IO

import pyarrow.fs as pafs

from skate.train._storage import folders

_FLUSH_INTERVAL_S = 2.0  # for local files
_UPLOAD_INTERVAL_S = 30.0  # for object stores, where each flush uploads the whole file
_POLYNOMIAL = 0x82F63B78  # of CRC-32C
_MASK = 0xA282EAD8  # part of the format: a checksum of data that contains checksums would be weak


class Events:
    """An event file in a folder.

    Args:
        filesystem: The folder's filesystem.
        folder: The folder, which is created if it is missing.
        drop_from: The first step whose values in earlier files of the folder TensorBoard ignores.
    """

    def __init__(self, filesystem: pafs.FileSystem, folder: str, drop_from: int = 0) -> None:
        started_at = time.time()
        # TensorBoard reads the files of a folder in the order of their names.
        name = f"events.out.tfevents.{started_at:017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._filesystem, self._path = filesystem, posixpath.join(folder, name)
        filesystem.create_dir(folder, recursive=True)
        self._is_local = folders.uses_local_paths(filesystem)
        # An object store cannot append: each flush uploads the whole file.
        self._file: IO[bytes] = open(self._path, "ab") if self._is_local else io.BytesIO()  # noqa: SIM115
        self._flushed = time.monotonic()
        self._write(_double(1, started_at) + _text(3, b"brain.Event:2"))
        if drop_from:
            session_start = _varint(1, 1)
            self._write(_double(1, started_at) + _varint(2, drop_from) + _text(7, session_start))

    def add(self, step: int, at: float, scalars: Mapping[str, float]) -> None:
        """Add the scalars of a step."""
        values = b"".join(
            _text(1, _text(1, name.encode()) + _float(2, value)) for name, value in scalars.items()
        )
        self._write(_double(1, at) + _varint(2, step) + _text(5, values))
        if time.monotonic() - self._flushed >= (_FLUSH_INTERVAL_S if self._is_local else _UPLOAD_INTERVAL_S):
            self.flush()

    def flush(self) -> None:
        """Make the events visible to TensorBoard."""
        self._flushed = time.monotonic()
        if isinstance(self._file, io.BytesIO):
            folders.write(self._filesystem, self._path, self._file.getvalue())
        else:
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self.flush()
        self._file.close()

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))


# ------------------------------------------------------------ the encoding of protocol buffers


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value)


def _double(field: int, value: float) -> bytes:
    return _number(field << 3 | 1) + struct.pack("<d", value)


def _text(field: int, content: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(content)) + content


def _float(field: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # too large for 32 bits
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _number(field << 3 | 5) + packed


# ------------------------------------------------------------ checksums


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_REMAINDERS = tuple(map(_remainder, range(256)))


def _checksum(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _REMAINDERS[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)
