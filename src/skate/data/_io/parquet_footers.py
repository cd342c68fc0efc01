"""Footers of Parquet files: what is known about the rows before any of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from skate.air import _filesystems as filesystems
from skate.data._io import errors, pickled_columns, retrying
from skate.data._io.paths import SourceFile

# Waiting for a store takes no processor; parsing local footers does.
_REMOTE_AT_A_TIME = 32
_LOCAL_AT_A_TIME = 4
_LOCAL_IN_A_ROW = 16  # are read before a thread would have started
# Encoded values of variable width take about this much more as Arrow arrays: dictionaries, prefixes.
_DECODING_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file says about itself.

    Attributes:
        schema: Of its columns, without metadata.
        rows: In each row group.
        bytes_per_row: As Arrow arrays, about, by column.
    """

    schema: pa.Schema
    rows: tuple[int, ...]
    bytes_per_row: dict[str, float]

    def row_bytes(self, columns: Sequence[str]) -> float:
        """Return about how many bytes one row of some columns takes."""
        return sum(self.bytes_per_row.get(column, 0.0) for column in columns)


def read_all(files: Sequence[SourceFile], filesystem: pafs.FileSystem) -> list[Footer]:
    """Return the footers of files, read several at a time.

    Raises:
        FileReadError: A file is no Parquet file; says which.
    """
    schemas: dict[pa.Schema, pa.Schema] = {}  # thousands of files usually share one

    def read(file: SourceFile) -> Footer:
        try:
            return retrying.call(
                lambda: _read(file, filesystem, schemas), f"reading the footer of {file.path}"
            )
        except Exception as error:
            made = errors.with_path(error, "Parquet", file.path)
            if made is error:
                raise
            raise made from error

    local = filesystems.is_local(filesystem)
    if len(files) <= (_LOCAL_IN_A_ROW if local else 2):
        return [read(file) for file in files]
    at_a_time = _LOCAL_AT_A_TIME if local else _REMOTE_AT_A_TIME
    with ThreadPoolExecutor(min(at_a_time, len(files))) as pool:
        return list(pool.map(read, files))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without metadata: what pandas or Parquet note there is not part of the rows."""
    return pa.schema([field.remove_metadata() for field in pickled_columns.written_schema(schema)])


def _read(file: SourceFile, filesystem: pafs.FileSystem, schemas: dict[pa.Schema, pa.Schema]) -> Footer:
    with filesystem.open_input_file(file.path) as source, pq.ParquetFile(source) as parquet:
        metadata = parquet.metadata
        schema = plain(parquet.schema_arrow)
    schema = schemas.setdefault(schema, schema)
    rows = tuple(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    return Footer(schema, rows, _bytes_per_row(metadata, schema))


def _bytes_per_row(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, float]:
    encoded: dict[str, float] = {}
    # The first row group speaks for the others: a footer can hold a million column chunks.
    if metadata.num_row_groups and (rows := metadata.row_group(0).num_rows):
        group = metadata.row_group(0)
        for index in range(group.num_columns):
            chunk = group.column(index)
            name = chunk.path_in_schema
            top = name if name in schema.names else name.partition(".")[0]
            encoded[top] = encoded.get(top, 0.0) + max(
                chunk.total_uncompressed_size / rows, _hidden_bytes(chunk)
            )
    return {
        field.name: _width(field.type) or _DECODING_RATIO * encoded.get(field.name, 0.0) + 4
        for field in schema
    }


def _hidden_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    """Return about how long values are that a dictionary holds once, however often they occur."""
    statistics = chunk.statistics if chunk.has_dictionary_page else None
    if statistics is None or not statistics.has_min_max:
        return 0
    both = (statistics.min, statistics.max)
    return max(len(value) for value in both) if all(isinstance(value, str | bytes) for value in both) else 0


def _width(type_: pa.DataType) -> float | None:
    try:
        return type_.bit_width / 8  # type: ignore[no-any-return]
    except ValueError:  # variable
        return None
