"""Tables of ClickHouse, as a source and as a sink, over its HTTP interface."""

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
# A task for fewer rows costs more than it saves.
_LEAST_ROWS_PER_TASK = 50


class SinkMode(IntEnum):
    """What `Dataset.write_clickhouse` does with a table of the same name.

    Attributes:
        CREATE: Make the table; an error if it exists.
        APPEND: Add rows to the table, which is made if it does not exist.
        OVERWRITE: Drop the table and make it again.
    """

    CREATE = 1
    APPEND = 2
    OVERWRITE = 3


@dataclass(frozen=True)
class ClickHouseTableSettings:
    """How a table is made.

    Attributes:
        engine: Its engine.
        order_by: The expression of `ORDER BY`; a column is chosen if not given.
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
    """How to connect to a server.

    Attributes:
        dsn: Its address: `clickhouse+http://user:password@host:8123/database`.
        settings: Of the session.
        options: More arguments of `clickhouse_connect.get_client`.
        caller: The call that needs the server.
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
    def connected(self) -> Iterator[Any]:
        """Yield a client, and close it afterwards."""
        settings = self.settings or {}
        client = self._library().get_client(dsn=self.dsn, settings=settings, **(self.options or {}))
        try:
            yield client
        finally:
            client.close()


class ClickHouseDatasource(Datasource):
    """Read a table or a view.

    Rows have an order only if the query gives them one: without `order_by`, or with a filter, one task reads all.

    Args:
        table: Its name, as `database.table`.
        dsn: The address of the server.
        columns: Read only these.
        filter: The condition of a `WHERE` clause.
        order_by: Columns to order by, and whether in descending order.
        client_settings: Settings of the session.
        client_kwargs: More arguments of `clickhouse_connect.get_client`.

    Raises:
        ValueError: The filter holds more than one statement, or the server does not accept it.
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
            raise ValueError(f"the filter {filter!r} has a semicolon outside of quotes: pass one condition")
        with self._server.connected() as client:
            try:
                client.command(f"EXPLAIN SELECT 1 FROM {table} WHERE {filter}")
            except Exception as error:  # the library has several classes of errors for a query
                raise ValueError(f"the server does not accept the filter {filter!r}: {error}") from error

    @functools.cached_property
    def _sample(self) -> tuple[int, pa.Table]:
        """The number of rows, and the first of them."""
        with self._server.connected() as client:
            counted = client.query_arrow(f"SELECT COUNT(*) AS rows FROM ({self._query}) AS found")
            sample = client.query_arrow(f"{self._query} LIMIT {_SAMPLED_ROWS}")
        return int(counted.column(0)[0].as_py()), sample

    def schema(self) -> pa.Schema | None:
        """Return the schema of a few rows."""
        return self._sample[1].schema

    def num_rows(self) -> int | None:
        """Return how many rows there are now."""
        return self._sample[0]

    def estimate_inmemory_data_size(self) -> int | None:
        """Return about how many bytes the rows take, by those of a few."""
        return self._size_of(self._sample[0])

    def _size_of(self, count: int) -> int:
        sample = self._sample[1]
        return tables.nbytes(sample) * count // max(1, int(sample.num_rows))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Cut an ordered table into runs of rows."""
        count, sample = self._sample
        parts = min(parallelism, -(-count // _LEAST_ROWS_PER_TASK)) if self._divisible else 1
        if not self._divisible and parallelism > 1 and count > _LEAST_ROWS_PER_TASK:
            _logger.info("one task reads %s: several need order_by, and no filter", self._query)
        step = max(1, -(-count // max(1, parts)))
        tasks = []
        for start in range(0, max(count, 1), step):
            rows = min(step, count - start)
            metadata = BlockMetadata(
                num_rows=rows, size_bytes=self._size_of(rows), input_files=None, exec_stats=None
            )
            query = self._query if parts <= 1 else f"{self._query} LIMIT {rows} OFFSET {start}"
            read = functools.partial(_read, self._server, query)
            tasks.append(ReadTask(read, metadata, sample.schema, per_task_row_limit))
        return tasks


def _read(server: Server, query: str) -> Iterator[pa.Table]:
    with server.connected() as client, client.query_arrow_stream(query) as stream:
        for batch in stream:
            yield batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def _ends_statement(text: str) -> bool:
    r"""Return whether a semicolon stands outside of quotes.

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

    A part that a failed task has inserted in part is inserted again: its rows can be there twice.

    Args:
        table: Its name, as `database.table`.
        dsn: The address of the server.
        mode: What to do with a table of this name.
        schema: Of the table, if it is made; what rows hold is cast to it.
        client_settings: Settings of the session.
        client_kwargs: More arguments of `clickhouse_connect.get_client`.
        table_settings: How the table is made.
        max_insert_block_rows: Rows to insert at a time; all of a block if not given.
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
        """Make the table, where the mode says so.

        Raises:
            ValueError: The table exists and must not, or it has to be made and its schema is unknown.
        """
        with self._server.connected() as client:
            exists = bool(int(client.command(f"EXISTS TABLE {self._table}")))
            if exists and self._mode is SinkMode.CREATE:
                raise ValueError(
                    f"the table {self._table} exists already: pass mode=SinkMode.APPEND or SinkMode.OVERWRITE"
                )
            if exists and self._mode is SinkMode.APPEND:
                return
            wanted = self._schema if self._schema is not None else schema
            if wanted is None:
                raise ValueError(
                    f"the table {self._table} has to be made: pass schema=, its columns are unknown"
                )
            if exists:
                client.command(f"DROP TABLE {self._table}")
            client.command(self._definition(wanted))

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> int:
        """Write one part, and return the number of its rows."""
        written = 0
        with self._server.connected() as client:
            for block in blocks:
                rows = block if self._schema is None else schemas.conform(block, self._schema)
                step = self._rows_at_a_time or max(1, rows.num_rows)
                for start in range(0, rows.num_rows, step):
                    client.insert_arrow(self._table, rows.slice(start, step))
                written += rows.num_rows
        return written

    def _definition(self, schema: pa.Schema) -> str:
        settings = self._settings
        columns = ", ".join(f"`{field.name}` {_column_type(field.type)}" for field in schema)
        parts = [f"CREATE TABLE {self._table} ({columns}) ENGINE = {settings.engine}"]
        if settings.partition_by is not None:
            parts.append(f"PARTITION BY {settings.partition_by}")
        if settings.primary_key is not None:
            parts.append(f"PRIMARY KEY ({settings.primary_key})")
        parts.append(f"ORDER BY {settings.order_by or _order_of(schema)}")
        if settings.settings is not None:
            parts.append(f"SETTINGS {settings.settings}")
        return " ".join(parts)


def _order_of(schema: pa.Schema) -> str:
    """Return the column that orders a new table: a time, or a number, or the first one."""
    for suits in (pa.types.is_timestamp, lambda type_: not _is_text(type_), lambda type_: True):
        for field in schema:
            if suits(field.type):
                return f"`{field.name}`"
    return "tuple()"


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _column_type(type_: pa.DataType) -> str:
    """Return the type of a ClickHouse column for an Arrow type; text for those that have none.

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
