"""Datasource and datasink for Arrow IPC files, which include Feather files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs as pafs

from skate.data._io import pickled_columns
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink

_FILE_MAGIC = b"ARROW1"


class ArrowDatasource(FileBasedDatasource):
    """Read Arrow IPC files, Arrow IPC streams and Feather files.

    Accepts the arguments of `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "Arrow"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = ["arrow", "arrows", "feather", "ipc"]

    def _open_input_source(self, filesystem: pafs.FileSystem, path: str, **open_args: Any) -> pa.NativeFile:
        return filesystem.open_input_file(path)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        start = f.read(len(_FILE_MAGIC))
        f.seek(0)
        if start == _FILE_MAGIC:
            with pa.ipc.open_file(f) as reader:
                yield from self._validated_tables(
                    reader.get_batch(index) for index in range(reader.num_record_batches)
                )
                if not reader.num_record_batches:
                    yield reader.schema.empty_table()
        else:
            with pa.ipc.open_stream(f) as reader:
                yield from self._validated_tables(reader)

    def _validated_tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            # Arrow trusts the offsets in a file: one outside of its buffer would crash the process.
            batch.validate(full=True)
            yield pa.Table.from_batches([batch]).replace_schema_metadata()


def from_stream(data: bytes) -> pa.Table:
    """Return the rows of an IPC stream in memory.

    Raises:
        ValueError: A column holds pickled objects, and unpickling is not allowed.
    """
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return pickled_columns.restore_objects(
        table, pickled_columns.may_unpickle(pickled_columns.RAY_ALLOW_PICKLED)
    )


class ArrowDatasink(BlockBasedFileDatasink):
    """Write Arrow IPC files, which are also Feather files.

    Args:
        path: The folder.
        compression: Compression of the buffers: `"lz4"`, `"zstd"` or None.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, compression: str | None = "lz4", **file_args: Any
    ) -> None:
        super().__init__(path, file_format=file_args.pop("file_format", "arrow"), **file_args)
        self._compression = compression

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a block."""
        table = block.to_arrow()
        options = pa.ipc.IpcWriteOptions(compression=self._compression)
        with pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table)
