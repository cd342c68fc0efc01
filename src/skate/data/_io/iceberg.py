"""Iceberg tables, as a source and as a sink."""

from __future__ import annotations

import functools
import pickle
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from skate.data import _optional
from skate.data._block import schemas, tables
from skate.data._io import partitions
from skate.data._io.parquet_footers import plain
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext, WriteResult
from skate.data.datasource.datasource import Datasource, ReadTask
from skate.data.datasource.savemode import SaveMode

_MODES = (SaveMode.APPEND, SaveMode.OVERWRITE)


class IcebergDatasource(Datasource):
    """Read an Iceberg table, cut by its files.

    Args:
        table_identifier: Its name in the catalog: `"db.table"`.
        row_filter: An expression of `pyiceberg`, or its text.
        selected_fields: Which columns.
        snapshot_id: Which snapshot; the newest, as it is now, if not given.
        scan_kwargs: More options for `Table.scan`.
        catalog_kwargs: For `pyiceberg.catalog.load_catalog`; `name` is the catalog's.
    """

    def __init__(
        self,
        table_identifier: str,
        row_filter: Any = None,
        selected_fields: tuple[str, ...] = ("*",),
        snapshot_id: int | None = None,
        scan_kwargs: dict[str, Any] | None = None,
        catalog_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self._table = _load(table_identifier, catalog_kwargs, "read_iceberg")
        options = dict(scan_kwargs or {})
        if row_filter is not None:
            options["row_filter"] = row_filter
        if snapshot_id is not None:
            options["snapshot_id"] = snapshot_id
        self._filtered = "row_filter" in options or "limit" in options
        self._scan = self._table.scan(selected_fields=tuple(selected_fields), **options)

    @functools.cached_property
    def _tasks(self) -> list[Any]:
        return list(self._scan.plan_files())

    def schema(self) -> pa.Schema | None:
        """Return the schema of what is read."""
        return plain(self._scan.projection().as_arrow())

    def num_rows(self) -> int | None:
        """Return the number of rows, if none is filtered out or deleted."""
        if self._filtered or any(task.delete_files for task in self._tasks):
            return None
        return int(sum(task.file.record_count for task in self._tasks))

    def estimate_inmemory_data_size(self) -> int | None:
        """Return about how many bytes the files take as blocks."""
        return 2 * int(sum(task.file.file_size_in_bytes for task in self._tasks))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Cut the files into runs of about the same size."""
        if not self._tasks:
            return []
        schema = self.schema()
        sizes = [task.file.file_size_in_bytes for task in self._tasks]
        made = []
        for group in partitions.balanced(self._tasks, sizes, parallelism):
            exact = not self._filtered and not any(task.delete_files for task in group)
            metadata = BlockMetadata(
                num_rows=sum(task.file.record_count for task in group) if exact else None,
                size_bytes=2 * sum(task.file.file_size_in_bytes for task in group),
                input_files=[task.file.file_path for task in group],
                exec_stats=None,
            )
            scan = self._scan
            read = functools.partial(
                _read,
                pickle.dumps(
                    (self._table.metadata, self._table.io, scan.projection(), scan.row_filter, group)
                ),
                scan.case_sensitive,
                per_task_row_limit if exact else scan.limit,
                schema,
            )
            # A file of an Iceberg table is never changed: its path says it all.
            identity = f"{scan.snapshot_id}#" + ",".join(task.file.file_path for task in group)
            made.append(ReadTask(read, metadata, schema, per_task_row_limit, identity=identity))
        return made


class IcebergDatasink(Datasink[list[bytes]]):
    """Write to an Iceberg table; what is written appears as one snapshot when all parts are written.

    Args:
        table_identifier: Its name in the catalog; the table has to exist.
        catalog_kwargs: For `pyiceberg.catalog.load_catalog`.
        snapshot_properties: To note with the snapshot.
        mode: `"append"` or `"overwrite"`.
        overwrite_filter: Which rows to replace: an expression of `pyiceberg`, or its text; all, if not given.
    """

    def __init__(
        self,
        table_identifier: str,
        catalog_kwargs: dict[str, Any] | None = None,
        snapshot_properties: dict[str, str] | None = None,
        mode: SaveMode = SaveMode.APPEND,
        overwrite_filter: Any = None,
    ) -> None:
        _optional.load("pyiceberg", "write_iceberg")
        if mode not in _MODES:
            raise ValueError(
                f"mode is {str(mode)!r}: Iceberg tables can be written with 'append' or 'overwrite'"
            )
        if overwrite_filter is not None and mode != SaveMode.OVERWRITE:
            raise ValueError("overwrite_filter says which rows to replace: pass mode='overwrite' with it")
        self._identifier = table_identifier
        self._catalog_kwargs = catalog_kwargs
        self._properties = dict(snapshot_properties or {})
        self._mode = SaveMode(mode)
        self._overwrite_filter = overwrite_filter
        self._state: bytes | None = None

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Load the table, and add columns that it does not have."""
        table = _load(self._identifier, self._catalog_kwargs, "write_iceberg")
        if schema is not None and set(schema.names) - {field.name for field in table.schema().fields}:
            with table.update_schema() as update:
                update.union_by_name(schema)
        self._state = pickle.dumps((table.metadata, table.io))

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[bytes]:
        """Write the files of one part, and return what describes them."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        assert self._state is not None  # on_write_start has run
        metadata, io = pickle.loads(self._state)
        block = tables.concat(list(blocks) or [pa.table({})])
        if block.num_rows == 0:
            return []
        block = schemas.conform(block, plain(metadata.schema().as_arrow()))
        return [pickle.dumps(file) for file in _dataframe_to_data_files(metadata, block, io, uuid.uuid4())]

    def on_write_complete(self, write_result: WriteResult[list[bytes]]) -> None:
        """Commit all parts as one snapshot."""
        files = [pickle.loads(data) for returned in write_result.write_returns for data in returned or ()]
        table = _load(self._identifier, self._catalog_kwargs, "write_iceberg")
        with table.transaction() as transaction:
            if self._mode == SaveMode.OVERWRITE:
                from pyiceberg.expressions import AlwaysTrue

                wanted = AlwaysTrue() if self._overwrite_filter is None else self._overwrite_filter
                if table.current_snapshot() is not None:
                    transaction.delete(wanted, snapshot_properties=self._properties)
            with transaction.update_snapshot(snapshot_properties=self._properties).fast_append() as append:
                for file in files:
                    append.append_data_file(file)


def _load(identifier: str, catalog_kwargs: dict[str, Any] | None, for_what: str) -> Any:
    catalog = _optional.load("pyiceberg.catalog", for_what, "pyiceberg")
    options = dict(catalog_kwargs or {})
    name = options.pop("name", "default")
    return catalog.load_catalog(name, **options).load_table(identifier)


def _read(
    state: bytes, case_sensitive: bool, limit: int | None, schema: pa.Schema | None
) -> Iterator[pa.Table]:
    from pyiceberg.io.pyarrow import ArrowScan

    metadata, io, projection, row_filter, tasks = pickle.loads(state)
    scan = ArrowScan(metadata, io, projection, row_filter, case_sensitive, limit)
    for batch in scan.to_record_batches(tasks):
        block = pa.Table.from_batches([batch])
        block = pa.Table.from_arrays(block.columns, schema=plain(block.schema))
        yield block if schema is None else schemas.conform(block, schema)
