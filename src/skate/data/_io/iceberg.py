"""Iceberg tables as a source: cut by their files, without those that no predicate lets through."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import schemas
from skate.data._expressions.errors import NotExpressibleError
from skate.data._io import balancing, validation
from skate.data._io.iceberg_expressions import to_iceberg
from skate.data._io.parquet_footers import plain
from skate.data.block import BlockMetadata
from skate.data.datasource.datasource import Datasource, ReadTask

if TYPE_CHECKING:
    from skate.data.expressions import Expr


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
        self._table = load_table(table_identifier, catalog_kwargs, "read_iceberg")
        options = dict(scan_kwargs or {})
        if row_filter is not None:
            options["row_filter"] = row_filter
        if snapshot_id is not None:
            options["snapshot_id"] = snapshot_id
        self._limited = "limit" in options
        self._filtered = "row_filter" in options or self._limited
        self._scan = self._table.scan(selected_fields=tuple(selected_fields), **options)
        self._columns: list[str] | None = None
        self._planned: list[Any] | None = None

    @property
    def _tasks(self) -> list[Any]:
        if self._planned is None:
            self._planned = list(self._scan.plan_files())
        return self._planned

    def schema(self) -> pa.Schema | None:
        """Return the schema of what is read."""
        schema = plain(self._scan.projection().as_arrow())
        return validation.select_fields(schema, self._columns)

    def apply_projection(self, columns: list[str]) -> IcebergDatasource | None:
        """Return a source that reads only these columns; None for no column at all, whose rows nobody could count."""
        if not columns:
            return None
        scan = self._scan.update(selected_fields=tuple(columns))
        return self._changed(_scan=scan, _columns=list(columns))  # type: ignore[no-any-return]

    def apply_predicate(self, predicate: Expr) -> tuple[IcebergDatasource, None] | None:
        """Return a source that leaves out files and rows; None if Iceberg cannot compute the predicate."""
        from pyiceberg.expressions import And
        from pyiceberg.expressions.visitors import bind

        if self._limited:  # the limit counts rows before the filter
            return None
        try:
            wanted = to_iceberg(predicate)
            bind(self._scan.projection(), wanted, self._scan.case_sensitive)
        except (NotExpressibleError, ValueError, TypeError):  # a value of another type, for one
            return None
        scan = self._scan.update(row_filter=And(self._scan.row_filter, wanted))
        return self._changed(_scan=scan, _filtered=True, _planned=None), None

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
        for group in balancing.balance(self._tasks, sizes, parallelism):
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


def load_table(identifier: str, catalog_kwargs: dict[str, Any] | None, for_what: str) -> Any:
    """Return a table of a catalog, as it is now.

    Args:
        identifier: Its name in the catalog.
        catalog_kwargs: For `pyiceberg.catalog.load_catalog`.
        for_what: The call that needs it.
    """
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
