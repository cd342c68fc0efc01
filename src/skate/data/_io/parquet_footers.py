"""Footers of Parquet files: schema, row counts and sizes, known before any row is read."""

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

# Waiting for remote storage takes no CPU time; parsing local footers does.
_REMOTE_CONCURRENCY = 32
_LOCAL_CONCURRENCY = 4
_LOCAL_SEQUENTIAL = 16  # read sequentially before a thread would have started
# Typical expansion of encoded variable-width values (dictionaries, prefixes) as Arrow arrays.
_DECODING_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Footer:
    """Metadata of a Parquet file.

    Attributes:
        schema: Schema of the columns, without metadata.
        rows: Number of rows of each row group.
        bytes_per_row: Estimated size per row as Arrow arrays, by column.
    """

    schema: pa.Schema
    rows: tuple[int, ...]
    bytes_per_row: dict[str, float]

    def row_bytes(self, columns: Sequence[str]) -> float:
        """Estimate the size of one row of some columns, in bytes."""
        return sum(self.bytes_per_row.get(column, 0.0) for column in columns)


def read_all(files: Sequence[SourceFile], filesystem: pafs.FileSystem) -> list[Footer]:
    """Return the footers of files, read in parallel.

    Raises:
        FileReadError: A file is not a Parquet file; the message names it.
    """
    schemas: dict[pa.Schema, pa.Schema] = {}  # thousands of files usually share one schema

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
    if len(files) <= (_LOCAL_SEQUENTIAL if local else 2):
        return [read(file) for file in files]
    at_a_time = _LOCAL_CONCURRENCY if local else _REMOTE_CONCURRENCY
    with ThreadPoolExecutor(min(at_a_time, len(files))) as pool:
        return list(pool.map(read, files))


def strip_metadata(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the metadata that pandas or Parquet add."""
    return pa.schema([field.remove_metadata() for field in pickled_columns.written_schema(schema)])


def _read(file: SourceFile, filesystem: pafs.FileSystem, schemas: dict[pa.Schema, pa.Schema]) -> Footer:
    with filesystem.open_input_file(file.path) as source, pq.ParquetFile(source) as parquet:
        metadata = parquet.metadata
        schema = strip_metadata(parquet.schema_arrow)
    schema = schemas.setdefault(schema, schema)
    rows = tuple(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    return Footer(schema, rows, _bytes_per_row(metadata, schema))


def _bytes_per_row(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, float]:
    encoded: dict[str, float] = {}
    # Sample only the first row group: a footer can hold a million column chunks.
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
    """Estimate the size of values that a dictionary stores once, counted per occurrence."""
    statistics = chunk.statistics if chunk.has_dictionary_page else None
    if statistics is None or not statistics.has_min_max:
        return 0
    both = (statistics.min, statistics.max)
    return max(len(value) for value in both) if all(isinstance(value, str | bytes) for value in both) else 0


def _width(type_: pa.DataType) -> float | None:
    try:
        return type_.bit_width / 8  # type: ignore[no-any-return]
    except ValueError:  # variable width
        return None
