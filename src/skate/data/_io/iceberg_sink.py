"""Datasink for Iceberg tables: append, overwrite or upsert rows, with one commit per write."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.air import _optional
from skate.data._block import schemas, tables
from skate.data._expressions.expr import Expr
from skate.data._io.iceberg import load_table
from skate.data._io.iceberg_expressions import to_iceberg
from skate.data._io.parquet_footers import strip_metadata
from skate.data.datasource.datasink import Datasink, TaskContext, WriteResult
from skate.data.datasource.savemode import SaveMode

_MODES = (SaveMode.APPEND, SaveMode.OVERWRITE, SaveMode.UPSERT)
_UPSERT_OPTIONS = ("join_cols", "case_sensitive", "branch")
_OVERWRITE_OPTIONS = ("case_sensitive", "branch")
_ROW = "__row"
# Attempts to evolve the schema, which another writer may change at the same time.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Part:
    """The result of one write task.

    Attributes:
        files: Pickled descriptions of the files.
        keys: The key columns of the rows, for an upsert.
    """

    files: list[bytes]
    keys: pa.Table | None = None


class IcebergDatasink(Datasink[Part]):
    """Write to an Iceberg table; one commit makes all files visible once every task has finished.

    Missing columns are added to the table, and types that are too narrow are widened.

    Args:
        table_identifier: Name of the table in the catalog; the table must exist.
        catalog_kwargs: Arguments for `pyiceberg.catalog.load_catalog`.
        snapshot_properties: Properties of the new snapshot.
        mode: `"append"`; `"overwrite"` replaces rows; `"upsert"` replaces rows with equal keys and adds the others.
        overwrite_filter: Rows to replace: an expression, one of `pyiceberg`, or its text; all rows by default.
        upsert_kwargs: `join_cols`, the key columns (by default the table's identifier fields), `case_sensitive` and
            `branch`.
        overwrite_kwargs: `case_sensitive` and `branch`.
    """

    def __init__(
        self,
        table_identifier: str,
        catalog_kwargs: dict[str, Any] | None = None,
        snapshot_properties: dict[str, str] | None = None,
        mode: SaveMode = SaveMode.APPEND,
        overwrite_filter: Any = None,
        upsert_kwargs: dict[str, Any] | None = None,
        overwrite_kwargs: dict[str, Any] | None = None,
    ) -> None:
        _optional.load("pyiceberg", "write_iceberg")
        if mode not in _MODES:
            known = ", ".join(repr(str(known)) for known in _MODES)
            raise ValueError(f"mode is {str(mode)!r}: Iceberg tables can be written with {known}")
        if overwrite_filter is not None and mode != SaveMode.OVERWRITE:
            raise ValueError("overwrite_filter needs mode='overwrite'")
        self._identifier = table_identifier
        self._catalog_kwargs = catalog_kwargs
        self._properties = dict(snapshot_properties or {})
        self._mode = SaveMode(mode)
        self._filter = (
            to_iceberg(overwrite_filter) if isinstance(overwrite_filter, Expr) else overwrite_filter
        )
        self._upsert = _check_options(
            "upsert_kwargs", upsert_kwargs, _UPSERT_OPTIONS, mode == SaveMode.UPSERT
        )
        self._overwrite = _check_options(
            "overwrite_kwargs", overwrite_kwargs, _OVERWRITE_OPTIONS, mode == SaveMode.OVERWRITE
        )
        self._keys: list[str] = []
        self._state: bytes | None = None

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Load the table and add the columns and types that the rows need."""
        table = load_table(self._identifier, self._catalog_kwargs, "write_iceberg")
        if self._mode == SaveMode.UPSERT:
            self._keys = _key_columns(table.schema(), self._identifier, self._upsert)
        if schema is not None:
            table = self._evolve_schema(table, schema)
        self._state = pickle.dumps((table.metadata, table.io))

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Part:
        """Write the files of one task and return their descriptions."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        assert self._state is not None  # on_write_start has run
        metadata, io = pickle.loads(self._state)
        block = tables.concat(list(blocks) or [pa.table({})])
        if block.num_rows == 0:
            return Part([])
        if _needed_fields(metadata.schema(), block.schema):
            # The schema was unknown when the write started.
            table = load_table(self._identifier, self._catalog_kwargs, "write_iceberg")
            metadata = self._evolve_schema(table, block.schema).metadata
        block = schemas.conform(block, strip_metadata(metadata.schema().as_arrow()))
        files = [pickle.dumps(file) for file in _dataframe_to_data_files(metadata, block, io, uuid.uuid4())]
        return Part(files, block.select(self._keys) if self._keys else None)

    def on_write_complete(self, write_result: WriteResult[Part]) -> None:
        """Commit the files of all tasks."""
        parts = [part for part in write_result.write_returns if part is not None]
        files = [pickle.loads(file) for part in parts for file in part.files]
        table = load_table(self._identifier, self._catalog_kwargs, "write_iceberg")
        if self._mode == SaveMode.UPSERT:
            keys = [part.keys for part in parts if part.keys is not None]
            if keys:
                self._merge(table, files, pa.concat_tables(keys))
            return
        with table.transaction() as transaction:
            if self._mode == SaveMode.OVERWRITE and table.current_snapshot() is not None:
                from pyiceberg.expressions import AlwaysTrue

                wanted = AlwaysTrue() if self._filter is None else self._filter
                transaction.delete(wanted, snapshot_properties=self._properties, **self._overwrite)
            branch = {key: value for key, value in self._overwrite.items() if key == "branch"}
            snapshot = transaction.update_snapshot(snapshot_properties=self._properties, **branch)
            with snapshot.fast_append() as append:
                for file in files:
                    append.append_data_file(file)

    def _merge(self, table: Any, files: list[Any], keys: pa.Table) -> None:
        """Add files, and remove rows with the same keys from the existing files of the table."""
        known = keys.drop_null()  # null equals nothing, so such rows are added
        distinct = known.group_by(self._keys).aggregate([])
        if distinct.num_rows < known.num_rows:
            twice = known.num_rows - distinct.num_rows
            for file in files:
                table.io.delete(file.file_path)
            raise ValueError(
                f"{twice} of the {keys.num_rows} rows to upsert have the key of another one (join_cols {self._keys}), "
                "and a table holds one row per key: nothing was written. Drop duplicates first"
            )
        branch = {"branch": self._upsert["branch"]} if "branch" in self._upsert else {}
        scan = table.scan(row_filter=_key_range(distinct))
        if branch and branch["branch"] in table.metadata.refs:
            scan = scan.use_ref(branch["branch"])
        with table.transaction() as transaction:
            snapshot = transaction.update_snapshot(snapshot_properties=self._properties, **branch)
            with snapshot.overwrite() as overwrite:
                for task in scan.plan_files() if scan.snapshot() is not None else ():
                    left = _rewrite_without(table, task, distinct)
                    if left is None:
                        continue
                    overwrite.delete_data_file(task.file)
                    for file in left:
                        overwrite.append_data_file(file)
                for file in files:
                    overwrite.append_data_file(file)

    def _evolve_schema(self, table: Any, schema: pa.Schema) -> Any:
        """Return the table after adding the columns and widening the types that a schema needs."""
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(1, _ATTEMPTS + 1):
            needed = _needed_fields(table.schema(), schema)
            if not needed:
                break
            try:
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(needed))
            except CommitFailedException:
                if attempt == _ATTEMPTS:
                    raise
                table = load_table(self._identifier, self._catalog_kwargs, "write_iceberg")
        return table


def _check_options(
    name: str, given: Mapping[str, Any] | None, known: Sequence[str], is_used: bool
) -> dict[str, Any]:
    found = dict(given or {})
    if found and not is_used:
        mode = name.removesuffix("_kwargs")
        raise ValueError(f"{name} needs mode={mode!r}")
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise ValueError(f"{name} does not accept {unknown}: use {list(known)}")
    return found


def _key_columns(schema: Any, identifier: str, options: Mapping[str, Any]) -> list[str]:
    given = options.get("join_cols")
    if not given:
        names = [schema.find_column_name(number) for number in schema.identifier_field_ids]
        if not names:
            raise ValueError(
                f"{identifier} has no identifier fields to use as a key: pass upsert_kwargs={{'join_cols': [...]}}"
            )
        return names
    columns = [field.name for field in schema.fields]
    if not options.get("case_sensitive", True):
        by_lower = {name.lower(): name for name in columns}
        given = [by_lower.get(name.lower(), name) for name in given]
    unknown = [name for name in given if name not in columns]
    if unknown:
        raise ValueError(f"join_cols names {unknown}, but {identifier} has the columns {columns}")
    return list(given)


def _needed_fields(table_schema: Any, schema: pa.Schema) -> list[pa.Field]:
    """Return the fields that a table lacks or holds with a narrower type."""
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, visit_pyarrow
    from pyiceberg.schema import promote

    existing = {field.name: field for field in table_schema.fields}
    needed = []
    for field in strip_metadata(schema):
        own = existing.get(field.name)
        if own is None:
            needed.append(field)
            continue
        if not own.field_type.is_primitive or pa.types.is_null(field.type):
            continue
        try:
            wanted: Any = visit_pyarrow(field.type, _ConvertToIcebergWithoutIDs())
            if wanted != own.field_type and promote(own.field_type, wanted) == wanted:
                needed.append(field.with_nullable(not own.required))
        except (ResolveError, TypeError):  # not wider: the cast reports values that do not fit
            continue
    return needed


def _key_range(keys: pa.Table) -> Any:
    """Return a predicate that all rows with these keys satisfy, and few others, to skip files with."""
    expressions = _optional.load("pyiceberg.expressions", "write_iceberg", "pyiceberg")
    found = expressions.AlwaysTrue()
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        if pa.types.is_floating(column.type) or keys.num_rows == 0:  # NaN is not ordered
            continue
        try:
            ends = pc.min_max(column).as_py()
        except pa.ArrowNotImplementedError:
            continue
        found = expressions.And(
            found,
            expressions.GreaterThanOrEqual(name, ends["min"]),
            expressions.LessThanOrEqual(name, ends["max"]),
        )
    return found


def _rewrite_without(table: Any, task: Any, keys: pa.Table) -> list[Any] | None:
    """Rewrite a file without the rows of some keys; return None if it has none of them."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

    rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])
    own = rows.select(keys.column_names)
    own = own.cast(pa.schema([field.with_nullable(True) for field in strip_metadata(own.schema)]))
    numbered = own.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    left = numbered.join(keys.cast(own.schema), keys.column_names, join_type="left anti")
    if left.num_rows == rows.num_rows:
        return None
    kept = rows.take(left[_ROW].combine_chunks().sort())
    if kept.num_rows == 0:
        return []
    return list(_dataframe_to_data_files(table.metadata, kept, table.io, uuid.uuid4()))
