"""Datasource for Iceberg tables, divided by files, with files skipped that cannot match the predicate."""

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
from skate.data._io.parquet_footers import strip_metadata
from skate.data.block import BlockMetadata
from skate.data.datasource.datasource import Datasource, ReadTask

if TYPE_CHECKING:
    from skate.data.expressions import Expr


class IcebergDatasource(Datasource):
    """Read an Iceberg table, divided by its files.

    Args:
        table_identifier: Name of the table in the catalog: `"db.table"`.
        row_filter: An expression of `pyiceberg`, or its text.
        selected_fields: Columns to read.
        snapshot_id: Snapshot to read; by default the latest at the time of the call.
        scan_kwargs: Further options for `Table.scan`.
        catalog_kwargs: Arguments for `pyiceberg.catalog.load_catalog`; `name` is the name of the catalog.
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
        """Return the schema of the selected columns."""
        schema = strip_metadata(self._scan.projection().as_arrow())
        return validation.select_fields(schema, self._columns)

    def apply_projection(self, columns: list[str]) -> IcebergDatasource | None:
        """Return a datasource that reads only these columns; None for an empty list, which hides the row count."""
        if not columns:
            return None
        scan = self._scan.update(selected_fields=tuple(columns))
        return self._replace(_scan=scan, _columns=list(columns))  # type: ignore[no-any-return]

    def apply_predicate(self, predicate: Expr) -> tuple[IcebergDatasource, None] | None:
        """Return a datasource that skips files and rows; None if Iceberg cannot evaluate the predicate."""
        from pyiceberg.expressions import And
        from pyiceberg.expressions.visitors import bind

        if self._limited:  # the limit applies to rows before the filter
            return None
        try:
            wanted = to_iceberg(predicate)
            bind(self._scan.projection(), wanted, self._scan.case_sensitive)
        except (NotExpressibleError, ValueError, TypeError):  # for example a value of another type
            return None
        scan = self._scan.update(row_filter=And(self._scan.row_filter, wanted))
        return self._replace(_scan=scan, _filtered=True, _planned=None), None

    def num_rows(self) -> int | None:
        """Return the number of rows, unless rows are filtered or deleted."""
        if self._filtered or any(task.delete_files for task in self._tasks):
            return None
        return int(sum(task.file.record_count for task in self._tasks))

    def estimate_inmemory_data_size(self) -> int | None:
        """Return about how many bytes the files take as blocks."""
        return 2 * int(sum(task.file.file_size_in_bytes for task in self._tasks))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the files into groups of about the same size."""
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
            # Files of an Iceberg table are immutable, so the path identifies the content.
            identity = f"{scan.snapshot_id}#" + ",".join(task.file.file_path for task in group)
            made.append(ReadTask(read, metadata, schema, per_task_row_limit, identity=identity))
        return made


def load_table(identifier: str, catalog_kwargs: dict[str, Any] | None, for_what: str) -> Any:
    """Return the current state of a table in a catalog.

    Args:
        identifier: Name of the table in the catalog.
        catalog_kwargs: Arguments for `pyiceberg.catalog.load_catalog`.
        for_what: The public call that needs the table.
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
        block = pa.Table.from_arrays(block.columns, schema=strip_metadata(block.schema))
        yield block if schema is None else schemas.conform(block, schema)
