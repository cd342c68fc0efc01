"""Datasource and datasink for Delta tables."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from skate.air import _optional
from skate.data._block import schemas, tables
from skate.data._block.errors import SchemaConflictError
from skate.data._io import validation
from skate.data._io.memory import EmptyDatasource
from skate.data._io.parquet import ParquetDatasource
from skate.data._io.parquet_footers import strip_metadata
from skate.data._io.parquet_sink import ParquetDatasink
from skate.data.block import BlockAccessor
from skate.data.datasource.datasink import Datasink, TaskContext, WriteResult
from skate.data.datasource.datasource import Datasource
from skate.data.datasource.partitioning import NULL_PARTITION, Partitioning, PartitionStyle
from skate.data.datasource.savemode import SaveMode

_MODES = (SaveMode.APPEND, SaveMode.OVERWRITE)
# Tables with these features cannot be read file by file as plain Parquet.
_UNREADABLE = {"deletionVectors", "columnMapping"}


def delta_source(
    path: str,
    version: int | None = None,
    *,
    storage_options: dict[str, Any] | None = None,
    filesystem: Any = None,
    columns: list[str] | None = None,
    **parquet_args: Any,
) -> Datasource:
    """Return a datasource for the Parquet files of one version of a Delta table.

    Args:
        path: Location of the table.
        version: The version to read; by default the latest at the time of the call.
        storage_options: Storage options of `deltalake`.
        filesystem: Filesystem to read the files with; derived from the URI by default.
        columns: Columns to read; all by default.
        parquet_args: As for `ParquetDatasource`.

    Raises:
        ValueError: The table uses a feature that plain Parquet files do not represent.
    """
    if not isinstance(path, str):
        raise ValueError(
            f"read_delta takes the path of one table, not {path!r}: use Dataset.union to read several"
        )
    deltalake = _optional.load("deltalake", "read_delta")
    table = deltalake.DeltaTable(path, version=version, storage_options=storage_options)
    needed = _UNREADABLE & set(table.protocol().reader_features or ())
    if needed:
        raise ValueError(
            f"the Delta table {path} uses {sorted(needed)}, which plain Parquet files do not represent: "
            f"rewrite it without, or read it with deltalake and from_arrow"
        )
    schema = strip_metadata(pa.schema(table.schema().to_arrow()))
    files = table.file_uris()
    if not files:
        return EmptyDatasource(validation.select_fields(schema, columns), "Parquet")
    return ParquetDatasource(
        files,
        columns=columns,
        filesystem=filesystem,
        schema=schema,
        partitioning=Partitioning(PartitionStyle.HIVE),
        file_extensions=parquet_args.pop("file_extensions", None),
        **parquet_args,
    )


@dataclass(frozen=True)
class WrittenFile:
    """A data file that is not yet part of a commit.

    Attributes:
        path: Path relative to the table.
        size: Size in bytes.
        rows: Number of rows.
        schema: Schema of the rows, including the partition columns.
    """

    path: str
    size: int
    rows: int
    schema: pa.Schema


class DeltaDatasink(Datasink[list[WrittenFile]]):
    """Write to a Delta table; one commit makes all files visible once every task has finished.

    Args:
        path: Location of the table; created if missing.
        mode: `"append"` or `"overwrite"`.
        partition_by: Partition columns of a new table; an existing table keeps its own.
        storage_options: Storage options of `deltalake`.
        filesystem: Filesystem to write the files with; derived from the URI by default.
        schema_mode: `"merge"` adds new columns to the table, `"error"` raises an error for them.
        name: Name of a new table.
        description: Description of a new table.
    """

    def __init__(
        self,
        path: str,
        *,
        mode: SaveMode = SaveMode.APPEND,
        partition_by: list[str] | None = None,
        storage_options: dict[str, Any] | None = None,
        filesystem: Any = None,
        schema_mode: str = "merge",
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        _optional.load("deltalake", "write_delta")
        if mode not in _MODES:
            raise ValueError(
                f"write_delta only supports the modes {[str(known) for known in _MODES]}, and mode is {str(mode)!r}"
            )
        if schema_mode not in ("merge", "error"):
            raise ValueError(f"schema_mode is {schema_mode!r}: use 'merge' or 'error'")
        self._path = str(path)
        self._mode = SaveMode(mode)
        self._partition_by = list(partition_by or ())
        self._storage_options = storage_options
        self._schema_mode = schema_mode
        self._name = name
        self._description = description
        self._schema: pa.Schema | None = None
        self._files = _DeltaFiles(self._path, filesystem=filesystem, partition_cols=self._partition_by)

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Check the partitioning of an existing table."""
        self._schema = schema
        table = self._table()
        if table is None:
            return
        existing = list(table.metadata().partition_columns)
        if self._partition_by and self._partition_by != existing:
            raise ValueError(
                f"a write can't change an existing table's partition columns: {self._path} has {existing}, but "
                f"partition_by is {self._partition_by}: omit it, or write to another table"
            )
        self._partition_by = existing
        self._files = self._files.partitioned_by(existing)

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[WrittenFile]:
        """Write the files of one task."""
        block = tables.concat(list(blocks) or [pa.table({})])
        missing = [name for name in self._partition_by if name not in block.column_names]
        if block.num_rows == 0:
            return []
        if missing:
            raise ValueError(
                f"rows to write are missing partition columns {missing} of {self._path}: they have {block.column_names}"
            )
        return self._files.write_files(block, ctx)

    def on_write_complete(self, write_result: WriteResult[list[WrittenFile]]) -> None:
        """Commit the files of all tasks as one version."""
        deltalake = _optional.load("deltalake", "write_delta")
        written = [file for files in write_result.write_returns for file in files or ()]
        table = self._table()
        if not written and (table is None or self._mode == SaveMode.APPEND):
            if table is None and self._schema is None:
                raise ValueError(
                    f"cannot create the Delta table {self._path} without a schema, and no rows were written"
                )
            if table is not None:
                return
        actions = [self._action(deltalake, file) for file in written]
        found = [file.schema for file in written]
        schema = schemas.unify(found) if found else self._schema
        if table is None:
            deltalake.transaction.create_table_with_add_actions(
                self._path,
                deltalake.Schema.from_arrow(schema),
                actions,
                "error",
                self._partition_by or None,
                self._name,
                self._description,
                storage_options=self._storage_options,
            )
            return
        existing = strip_metadata(pa.schema(table.schema().to_arrow()))
        if self._mode == SaveMode.APPEND:
            schema = self._merge_schema(table, existing, schema)
        table.create_write_transaction(
            actions,
            str(self._mode),
            deltalake.Schema.from_arrow(schema if schema is not None else existing),
            self._partition_by or None,
        )

    def _merge_schema(self, table: Any, existing: pa.Schema, schema: pa.Schema) -> pa.Schema:
        added = [field for field in schema if field.name not in existing.names]
        if added and self._schema_mode == "error":
            raise ValueError(
                f"columns {[field.name for field in added]} are not present in the table's existing schema "
                f"({self._path}): drop them, or pass schema_mode='merge'"
            )
        try:
            known = schemas.unify([existing, schema])
        except SchemaConflictError as error:
            raise ValueError(
                f"the rows are not compatible with the table's existing schema ({self._path}): {error}"
            ) from error
        changed = [name for name in existing.names if known.field(name).type != existing.field(name).type]
        if changed:
            raise ValueError(
                f"columns {changed} are not compatible with the table's existing schema ({self._path}): cast them to "
                f"{[str(existing.field(name).type) for name in changed]}"
            )
        if added:
            deltalake = _optional.load("deltalake", "write_delta")
            fields = [field.with_nullable(True) for field in added]
            table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(fields)).fields)
            table.update_incremental()
        return pa.schema(table.schema().to_arrow())

    def _table(self) -> Any:
        deltalake = _optional.load("deltalake", "write_delta")
        if not deltalake.DeltaTable.is_deltatable(self._path, self._storage_options):
            return None
        return deltalake.DeltaTable(self._path, storage_options=self._storage_options)

    def _action(self, deltalake: Any, file: WrittenFile) -> Any:
        folders = [part.split("=", 1) for part in file.path.split("/")[:-1]]
        values = {unquote(key): None if value == NULL_PARTITION else unquote(value) for key, value in folders}
        stats = json.dumps({"numRecords": file.rows})
        return deltalake.transaction.AddAction(
            file.path, file.size, values, int(time.time() * 1000), data_change=True, stats=stats
        )


class _DeltaFiles(ParquetDatasink):
    """Write the files of a Delta table without adding them to its log."""

    def partitioned_by(self, columns: list[str]) -> _DeltaFiles:
        self._partition_columns = columns
        return self

    def write_files(self, block: pa.Table, ctx: TaskContext) -> list[WrittenFile]:
        self._create_folder(self.path)
        self._written = []
        self.write_block(BlockAccessor.for_block(block), 0, ctx)
        infos = self._filesystem.get_file_info(self._written)
        root = self.path.rstrip("/") + "/"
        return [
            WrittenFile(path.removeprefix(root), info.size, self._count(path), block.schema)
            for path, info in zip(self._written, infos, strict=True)
        ]

    def _count(self, path: str) -> int:
        with self._filesystem.open_input_file(path) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
