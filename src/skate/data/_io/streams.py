"""Byte streams: compression by suffix, framed Snappy, which Arrow does not support, and fsync."""

from __future__ import annotations

import io
import os
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

_STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


def compression_of(path: str) -> str | None:
    """Return the compression that the suffix of a file indicates.

    >>> compression_of("a.json.gz"), compression_of("a.snappy"), compression_of("a.csv")
    ('gzip', 'snappy', None)
    """
    if path.endswith((".snappy", ".sz")):
        return "snappy"
    try:
        return str(pa.Codec.detect(path).name)
    except (ValueError, TypeError):
        return None


def open_stream(filesystem: pafs.FileSystem, path: str, **open_args: Any) -> pa.NativeFile:
    """Open a file for sequential reading, decompressed.

    Args:
        filesystem: The filesystem.
        path: The file.
        open_args: `compression` (by suffix if omitted, None for no compression) and `buffer_size`.
    """
    compression = open_args.pop("compression") if "compression" in open_args else compression_of(path)
    if compression == "snappy":
        with filesystem.open_input_stream(path, compression=None, **open_args) as file:
            return pa.BufferReader(_unframe_snappy(file.readall(), path))
    return filesystem.open_input_stream(path, compression=compression, **open_args)


def _unframe_snappy(data: bytes, path: str) -> pa.Buffer:
    if not data.startswith(_STREAM_IDENTIFIER):
        raise ValueError(
            f"{path} is not a framed Snappy stream: it does not start with the stream identifier"
        )
    codec = pa.Codec("snappy")
    source, out = memoryview(data), io.BytesIO()
    position = 0
    while position < len(source):
        kind = source[position]
        length = int.from_bytes(source[position + 1 : position + 4], "little")
        body = source[position + 4 : position + 4 + length]
        position += 4 + length
        if len(body) < length:
            raise ValueError(f"{path} is truncated: its last Snappy chunk lacks {length - len(body)} bytes")
        if kind == 0x00:  # compressed data after a checksum of 4 bytes
            out.write(codec.decompress(body[4:], decompressed_size=_varint(body[4:])))
        elif kind == 0x01:
            out.write(body[4:])
        elif 0x02 <= kind <= 0x7F:
            raise ValueError(f"{path} holds a Snappy chunk of unknown kind {kind:#x}")
    return pa.py_buffer(out.getvalue())


def _varint(data: memoryview) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value


def fsync(filesystem: pafs.FileSystem, path: str) -> None:
    """Flush a file or a directory to disk; do nothing for filesystems other than the local one."""
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
