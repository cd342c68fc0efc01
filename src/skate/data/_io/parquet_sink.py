"""Datasink for Parquet files, optionally in partition directories."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skate.data._block import schemas, tables
from skate.data.block import BlockAccessor
from skate.data.datasource.datasink import TaskContext
from skate.data.datasource.file_datasink import BlockBasedFileDatasink
from skate.data.datasource.filename_provider import insert_number
from skate.data.datasource.partitioning import NULL_PARTITION
from skate.data.datasource.savemode import SaveMode

# Target size of a row group, small enough that several tasks can share one large file.
_ROW_GROUP_BYTES = 64 << 20
_MAX_ROWS_PER_GROUP = 1 << 20
# Options of `pyarrow.dataset.write_dataset` that Ray passes on and that have no effect here.
_IGNORED_OPTIONS = {"existing_data_behavior", "use_threads", "max_partitions", "max_open_files"}


class ParquetDatasink(BlockBasedFileDatasink):
    """Write Parquet files.

    Args:
        path: The folder.
        partition_cols: Write rows to directories named by the values of these columns; files omit the columns.
        arrow_parquet_args_fn: Function that returns such options, for those that cannot be pickled.
        arrow_parquet_args: Options for `pyarrow.parquet.write_table`; also `schema`, to which rows are cast, and
            `partitioning_flavor` (`"hive"`, `"filename"`, or None for directories without keys).
        min_rows_per_file: Combine blocks until a file has this many rows.
        max_rows_per_file: Split blocks into files of at most this many rows.
        min_bytes_per_file: Minimum size of the blocks per file, in bytes.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        mode: How to treat an existing folder.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        partition_cols: list[str] | None = None,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        arrow_parquet_args: dict[str, Any] | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        min_bytes_per_file: int | None = None,
        filesystem: Any = None,
        mode: SaveMode = SaveMode.APPEND,
        **file_args: Any,
    ) -> None:
        for name, value in (
            ("max_rows_per_file", max_rows_per_file),
            ("min_bytes_per_file", min_bytes_per_file),
        ):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}: {name} must be a positive integer")
        if (
            min_rows_per_file is not None
            and max_rows_per_file is not None
            and min_rows_per_file > max_rows_per_file
        ):
            raise ValueError(
                f"min_rows_per_file is {min_rows_per_file}: it cannot be greater than max_rows_per_file, "
                f"{max_rows_per_file}"
            )
        if partition_cols and min_rows_per_file is not None:
            # A task writes one file per partition value, and each may be small.
            warnings.warn(
                "min_rows_per_file together with partition_cols is deprecated in Ray, as it holds for all folders "
                "together: bring equal values together with repartition(…, keys=partition_cols), and pass "
                "max_rows_per_file",
                DeprecationWarning,
                stacklevel=4,
            )
        super().__init__(
            path,
            min_rows_per_file=min_rows_per_file,
            filesystem=filesystem,
            mode=mode,
            file_format=file_args.pop("file_format", "parquet"),
            **file_args,
        )
        self._partition_columns = list(partition_cols or ())
        self._args_fn = arrow_parquet_args_fn
        self._args = dict(arrow_parquet_args or {})
        self._max_rows_per_file = max_rows_per_file
        self._min_bytes_per_file = min_bytes_per_file

    @property
    def min_bytes_per_write(self) -> int | None:
        """The minimum size of blocks per call of `write`, in bytes."""
        return self._min_bytes_per_file

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write a block as one file, or one file per partition."""
        table = block.to_arrow()
        args = {**self._args, **(self._args_fn() if self._args_fn is not None else {})}
        args = {name: value for name, value in args.items() if name not in _IGNORED_OPTIONS}
        flavor = args.pop("partitioning_flavor", "hive")
        schema = args.pop("schema", None)
        if schema is not None:
            table = schemas.conform(table, schema)
        write_uuid, task_index = self._name_arguments(ctx)
        template = self.filename_provider.get_filename_for_block(table, write_uuid, task_index, block_index)
        self._check_name(template, write_uuid)
        if "." not in template:
            template += ".parquet"  # read_parquet ignores files without the extension
        for folder, prefix, rows in self._split_by_partition(table, flavor):
            for number, part in enumerate(self._split_by_rows(rows)):
                self._write_file(
                    prefix + _file_name(template, number),
                    lambda file, part=part: _write_table(part, file, args),  # type: ignore[misc]  # a lambda with a default
                    folder,
                )

    def _check_name(self, template: str, write_uuid: str) -> None:
        # Otherwise two appending writes with the same names would overwrite each other's rows.
        if self.mode == SaveMode.APPEND and write_uuid not in template:
            raise ValueError(
                f"Write UUID {write_uuid!r} is missing from filename template {template!r}. This could result in files "
                "being overwritten by the next write that appends. Modify your FileNameProvider implementation to put "
                "write_uuid into the name, or pass mode='overwrite'"
            )

    def _split_by_rows(self, table: pa.Table) -> Iterator[pa.Table]:
        most = self._max_rows_per_file or max(1, table.num_rows)
        for start in range(0, max(1, table.num_rows), most):
            yield table.slice(start, most)

    def _split_by_partition(self, table: pa.Table, flavor: str | None) -> Iterator[tuple[str, str, pa.Table]]:
        """Yield the directory, the file name prefix and the rows of each combination of partition values."""
        if not self._partition_columns:
            yield "", "", table
            return
        missing = [name for name in self._partition_columns if name not in table.column_names]
        if missing:
            raise ValueError(f"partition_cols {missing} are not among the columns {table.column_names}")
        for values, rows in _groups(table, self._partition_columns):
            rows = rows.drop_columns(self._partition_columns)
            texts = [NULL_PARTITION if value is None else quote(str(value), safe=" :+,") for value in values]
            if flavor == "hive":
                pairs = zip(self._partition_columns, texts, strict=True)
                yield "/".join(f"{quote(name, safe=' ')}={text}" for name, text in pairs), "", rows
            elif flavor == "filename":
                yield "", "".join(f"{text}_" for text in texts), rows
            elif flavor is None:
                yield "/".join(texts), "", rows
            else:
                raise ValueError(f"partitioning_flavor is {flavor!r}: use 'hive', 'filename' or None")


def _groups(table: pa.Table, columns: list[str]) -> Iterator[tuple[list[Any], pa.Table]]:
    """Yield the rows of each combination of values: sort once by codes, then slice."""
    codes = np.zeros(table.num_rows, np.int64)
    uniques: list[pa.Array] = []
    for name in columns:
        column = table.column(name).combine_chunks()
        column = column if not isinstance(column, pa.ChunkedArray) else pa.concat_arrays(column.chunks)
        encoded = (
            column
            if pa.types.is_dictionary(column.type)
            else pc.dictionary_encode(column, null_encoding="encode")
        )
        if encoded.indices.null_count:
            encoded = pc.dictionary_encode(column.dictionary_decode(), null_encoding="encode")
        uniques.append(encoded.dictionary)
        # Combine the codes of several columns into one number, kept dense so that it cannot overflow.
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ordered = tables.take(table, order)
    borders = np.flatnonzero(np.diff(codes[order])) + 1
    starts = [0, *borders.tolist()]
    for start, stop in zip(starts, [*starts[1:], table.num_rows], strict=True):
        rows = ordered.slice(start, stop - start)
        yield [rows.column(name)[0].as_py() for name in columns], rows


def _file_name(template: str, number: int) -> str:
    if "{i}" in template:
        return template.replace("{i}", str(number))
    return template if number == 0 else insert_number(template, f"{number:06}")


def _write_table(table: pa.Table, file: pa.NativeFile, args: dict[str, Any]) -> None:
    chosen = dict(args)
    rows = chosen.pop("row_group_size", None) or chosen.pop("max_rows_per_group", None)
    chosen.pop("min_rows_per_group", None)
    if rows is None:
        row_bytes = max(1, tables.nbytes(table) // max(1, table.num_rows))
        rows = max(1, min(_MAX_ROWS_PER_GROUP, _ROW_GROUP_BYTES // row_bytes))
    pq.write_table(table, file, row_group_size=rows, **chosen)
