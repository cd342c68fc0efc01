"""Datasource and datasink for TFRecord files of `tf.train.Example`, without TensorFlow."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from skate.air import _optional
from skate.data._io import paths, tfrecord_examples
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink
from skate.data.exceptions import FileReadError

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_BYTES_PER_BLOCK = 8 << 20


class TFRecordReadError(FileReadError, RuntimeError):
    """Report an invalid TFRecord file. It is also a `RuntimeError`, because that is what Ray raises."""


class TFRecordDatasource(FileBasedDatasource):
    """Read TFRecord files, one row per example.

    A feature with at most one value in each example becomes a scalar column, other features become lists; with a
    schema, all features become lists.

    Args:
        paths: Files, folders, globs or URIs.
        tf_schema: A `tensorflow_metadata.proto.v0.schema_pb2.Schema` that lists the features.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "TFRecord"

    def __init__(self, paths: paths.Paths, *, tf_schema: Any = None, **file_args: Any) -> None:
        _load("read_tfrecords")
        self._tf_schema = None if tf_schema is None else tfrecord_examples.kinds_of(tf_schema)
        super().__init__(paths, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        found: list[bytes] = []
        size = 0
        single: dict[str, bool] = {}
        for record in _records(f, path):
            found.append(record)
            size += len(record)
            if size >= _BYTES_PER_BLOCK:
                yield tfrecord_examples.to_block(found, self._tf_schema, single)
                found, size = [], 0
        if found:
            yield tfrecord_examples.to_block(found, self._tf_schema, single)


class TFRecordDatasink(BlockBasedFileDatasink):
    """Write TFRecord files, one example per row.

    Args:
        path: The folder.
        tf_schema: A `tensorflow_metadata.proto.v0.schema_pb2.Schema` that lists the features.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(self, path: str | os.PathLike[str], *, tf_schema: Any = None, **file_args: Any) -> None:
        _load("write_tfrecords")
        super().__init__(path, file_format=file_args.pop("file_format", "tfrecords"), **file_args)
        self._tf_schema = None if tf_schema is None else tfrecord_examples.kinds_of(tf_schema)

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write one example per row."""
        for record in tfrecord_examples.from_block(block.to_arrow(), self._tf_schema):
            length = _LENGTH.pack(len(record))
            file.write(length + _masked_checksum(length) + record + _masked_checksum(record))


def _load(for_what: str) -> None:
    _optional.load("google.protobuf", for_what, "protobuf")
    _optional.load("google_crc32c", for_what, "google-crc32c")


def _records(file: pa.NativeFile, path: str) -> Iterator[bytes]:
    """Yield the records: each is preceded by its length, and both length and content have a checksum."""
    number = 0
    while head := file.read(_LENGTH.size + _CHECKSUM.size):
        if len(head) < _LENGTH.size + _CHECKSUM.size:
            raise TFRecordReadError(
                "TFRecord", path, f"the file is truncated in the header of record {number}"
            )
        length, checksum = head[: _LENGTH.size], head[_LENGTH.size :]
        if _masked_checksum(length) != checksum:
            raise TFRecordReadError("TFRecord", path, f"the length of record {number} fails its checksum")
        (size,) = _LENGTH.unpack(length)
        record = file.read(size)
        if len(record) < size or _masked_checksum(record) != file.read(_CHECKSUM.size):
            raise TFRecordReadError("TFRecord", path, f"record {number} is truncated or fails its checksum")
        yield record
        number += 1


def _masked_checksum(data: bytes) -> bytes:
    # Part of the format: the mask strengthens checksums of data that itself contains checksums.
    checksum = _optional.load("google_crc32c", "read_tfrecords", "google-crc32c").value(data)
    rotated = ((checksum >> 15) | (checksum << 17)) & 0xFFFFFFFF
    return _CHECKSUM.pack((rotated + 0xA282EAD8) & 0xFFFFFFFF)
