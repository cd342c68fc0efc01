"""Datasource and datasink for ClickHouse tables, over the HTTP interface."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import schemas, tables
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext
from skate.data.datasource.datasource import Datasource, ReadTask

_logger = logging.getLogger(__name__)

_SAMPLED_ROWS = 100
# Below this number of rows, the overhead of a task exceeds its benefit.
_MIN_ROWS_PER_TASK = 50


class SinkMode(IntEnum):
    """How `Dataset.write_clickhouse` treats an existing table.

    Attributes:
        CREATE: Create the table; raise an error if it exists.
        APPEND: Add rows to the table; create it if it does not exist.
        OVERWRITE: Drop the table and create it again.
    """

    CREATE = 1
    APPEND = 2
    OVERWRITE = 3


@dataclass(frozen=True)
class ClickHouseTableSettings:
    """Options for creating a table.

    Attributes:
        engine: The table engine.
        order_by: The expression of `ORDER BY`; by default, Skate chooses a column.
        partition_by: The expression of `PARTITION BY`.
        primary_key: The expression of `PRIMARY KEY`.
        settings: The text of `SETTINGS`.
    """

    engine: str = "MergeTree()"
    order_by: str | None = None
    partition_by: str | None = None
    primary_key: str | None = None
    settings: str | None = None


@dataclass(frozen=True)
class Server:
    """Connection settings of a server.

    Attributes:
        dsn: Address of the server: `clickhouse+http://user:password@host:8123/database`.
        settings: Settings of the session.
        options: Further arguments of `clickhouse_connect.get_client`.
        caller: The public call that needs the server.
    """

    dsn: str
    settings: dict[str, Any] | None
    options: dict[str, Any] | None
    caller: str

    def __post_init__(self) -> None:
        self._library()

    def _library(self) -> Any:
        return _optional.load("clickhouse_connect", self.caller, "clickhouse-connect")

    @contextlib.contextmanager
    def connect(self) -> Iterator[Any]:
        """Yield a client and close it afterwards."""
        settings = self.settings or {}
        client = self._library().get_client(dsn=self.dsn, settings=settings, **(self.options or {}))
        try:
            yield client
        finally:
            client.close()


class ClickHouseDatasource(Datasource):
    """Read a table or a view.

    Only a query with `order_by` and without a filter has a stable row order, so that several tasks can read
    ranges of it; any other query is read by one task.

    Args:
        table: Name of the table, as `database.table`.
        dsn: Address of the server.
        columns: Columns to read; all by default.
        filter: The condition of a `WHERE` clause.
        order_by: Columns to order by, and whether the order is descending.
        client_settings: Settings of the session.
        client_kwargs: Further arguments of `clickhouse_connect.get_client`.

    Raises:
        ValueError: The filter holds more than one statement, or the server rejects it.
    """

    def __init__(
        self,
        table: str,
        dsn: str,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        order_by: tuple[Sequence[str], bool] | None = None,
        client_settings: dict[str, Any] | None = None,
        client_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self._server = Server(dsn, client_settings, client_kwargs, "read_clickhouse")
        self._query = f"SELECT {', '.join(columns) if columns else '*'} FROM {table}"
        self._divisible = order_by is not None and filter is None
        if filter is not None:
            self._check_filter(table, filter)
            self._query += f" WHERE {filter}"
        if order_by is not None:
            names, descending = order_by
            direction = " DESC" if descending else ""
            self._query += " ORDER BY " + ", ".join(f"{name}{direction}" for name in names)

    def _check_filter(self, table: str, filter: str) -> None:
        if _ends_statement(filter):
            raise ValueError(
                f"the filter {filter!r} has a semicolon outside of quotes: pass a single condition"
            )
        with self._server.connect() as client:
            try:
                client.command(f"EXPLAIN SELECT 1 FROM {table} WHERE {filter}")
            except Exception as error:  # the library raises several unrelated classes for a bad query
                raise ValueError(f"the server rejects the filter {filter!r}: {error}") from error

    @functools.cached_property
    def _sample(self) -> tuple[int, pa.Table]:
        """Return the number of rows, and the first of them."""
        with self._server.connect() as client:
            counted = client.query_arrow(f"SELECT COUNT(*) AS rows FROM ({self._query}) AS found")
            sample = client.query_arrow(f"{self._query} LIMIT {_SAMPLED_ROWS}")
        return int(counted.column(0)[0].as_py()), sample

    def schema(self) -> pa.Schema | None:
        """Return the schema of a sample of rows."""
        return self._sample[1].schema

    def num_rows(self) -> int | None:
        """Return the current number of rows."""
        return self._sample[0]

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the size of the rows from a sample, in bytes."""
        return self._estimate_size(self._sample[0])

    def _estimate_size(self, count: int) -> int:
        sample = self._sample[1]
        return tables.nbytes(sample) * count // max(1, int(sample.num_rows))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split an ordered table into ranges of rows."""
        count, sample = self._sample
        parts = min(parallelism, -(-count // _MIN_ROWS_PER_TASK)) if self._divisible else 1
        if not self._divisible and parallelism > 1 and count > _MIN_ROWS_PER_TASK:
            _logger.info("A single task reads %s: parallel reads need order_by and no filter", self._query)
        step = max(1, -(-count // max(1, parts)))
        tasks = []
        for start in range(0, max(count, 1), step):
            rows = min(step, count - start)
            metadata = BlockMetadata(
                num_rows=rows, size_bytes=self._estimate_size(rows), input_files=None, exec_stats=None
            )
            query = self._query if parts <= 1 else f"{self._query} LIMIT {rows} OFFSET {start}"
            read = functools.partial(_read, self._server, query)
            tasks.append(ReadTask(read, metadata, sample.schema, per_task_row_limit))
        return tasks


def _read(server: Server, query: str) -> Iterator[pa.Table]:
    with server.connect() as client, client.query_arrow_stream(query) as stream:
        for batch in stream:
            yield batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def _ends_statement(text: str) -> bool:
    r"""Return whether the text contains a semicolon outside of quotes.

    >>> _ends_statement("a = 1; DROP TABLE t"), _ends_statement(r"a = 'it\'s; fine'")
    (True, False)
    """
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != "'"
            escaped = character == "\\" and not escaped
        elif character == ";":
            return True
        else:
            quoted = character == "'"
    return False


class ClickHouseDatasink(Datasink[int]):
    """Insert rows into a table.

    If a task fails after it inserted rows, its retry inserts them again, so rows may be duplicated.

    Args:
        table: Name of the table, as `database.table`.
        dsn: Address of the server.
        mode: How to treat an existing table.
        schema: Schema of a new table; rows are cast to it.
        client_settings: Settings of the session.
        client_kwargs: Further arguments of `clickhouse_connect.get_client`.
        table_settings: Options for creating the table.
        max_insert_block_rows: Rows per insert; a whole block by default.
    """

    def __init__(
        self,
        table: str,
        dsn: str,
        mode: SinkMode = SinkMode.CREATE,
        schema: pa.Schema | None = None,
        client_settings: dict[str, Any] | None = None,
        client_kwargs: dict[str, Any] | None = None,
        table_settings: Any = None,
        max_insert_block_rows: int | None = None,
    ) -> None:
        if max_insert_block_rows is not None and max_insert_block_rows < 1:
            raise ValueError(
                f"max_insert_block_rows is {max_insert_block_rows}: pass a positive int, or None"
            )
        self._table = table
        self._server = Server(dsn, client_settings, client_kwargs, "write_clickhouse")
        self._mode = SinkMode(mode)
        self._schema = schema
        self._settings = table_settings or ClickHouseTableSettings()
        self._rows_at_a_time = max_insert_block_rows

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Create or drop the table, as the mode requires.

        Raises:
            ValueError: The table exists in mode CREATE, or a table must be created and its schema is unknown.
        """
        with self._server.connect() as client:
            exists = bool(int(client.command(f"EXISTS TABLE {self._table}")))
            if exists and self._mode is SinkMode.CREATE:
                raise ValueError(
                    f"the table {self._table} already exists: pass mode=SinkMode.APPEND or SinkMode.OVERWRITE"
                )
            if exists and self._mode is SinkMode.APPEND:
                return
            wanted = self._schema if self._schema is not None else schema
            if wanted is None:
                raise ValueError(
                    f"the table {self._table} must be created, but its columns are unknown: pass schema="
                )
            if exists:
                client.command(f"DROP TABLE {self._table}")
            client.command(self._create_statement(wanted))

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> int:
        """Insert the blocks of one task and return the number of rows."""
        written = 0
        with self._server.connect() as client:
            for block in blocks:
                rows = block if self._schema is None else schemas.conform(block, self._schema)
                step = self._rows_at_a_time or max(1, rows.num_rows)
                for start in range(0, rows.num_rows, step):
                    client.insert_arrow(self._table, rows.slice(start, step))
                written += rows.num_rows
        return written

    def _create_statement(self, schema: pa.Schema) -> str:
        settings = self._settings
        columns = ", ".join(f"`{field.name}` {_column_type(field.type)}" for field in schema)
        parts = [f"CREATE TABLE {self._table} ({columns}) ENGINE = {settings.engine}"]
        if settings.partition_by is not None:
            parts.append(f"PARTITION BY {settings.partition_by}")
        if settings.primary_key is not None:
            parts.append(f"PRIMARY KEY ({settings.primary_key})")
        parts.append(f"ORDER BY {settings.order_by or _choose_order_column(schema)}")
        if settings.settings is not None:
            parts.append(f"SETTINGS {settings.settings}")
        return " ".join(parts)


def _choose_order_column(schema: pa.Schema) -> str:
    """Return the column to order a new table by: a time, else a number, else the first column."""
    for suits in (pa.types.is_timestamp, lambda type_: not _is_text(type_), lambda type_: True):
        for field in schema:
            if suits(field.type):
                return f"`{field.name}`"
    return "tuple()"


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _column_type(type_: pa.DataType) -> str:
    """Return the ClickHouse type for an Arrow type; `String` if there is no counterpart.

    >>> _column_type(pa.int16()), _column_type(pa.decimal128(10, 2)), _column_type(pa.date32())
    ('Int16', 'Decimal(10, 2)', 'String')
    """
    if pa.types.is_decimal(type_):
        return f"Decimal({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return "DateTime64(3)"
    if pa.types.is_boolean(type_):
        return "UInt8"
    if pa.types.is_unsigned_integer(type_):
        return f"UInt{type_.bit_width}"
    if pa.types.is_integer(type_):
        return f"Int{type_.bit_width}"
    if pa.types.is_floating(type_):
        return f"Float{max(32, type_.bit_width)}"
    return "String"
