"""Datasource and datasink for databases, through any DB-API connection, and connections to Snowflake."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from skate.air import _optional
from skate.data._block import rows
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext
from skate.data.datasource.datasource import Datasource, ReadTask

_logger = logging.getLogger(__name__)

_ROWS_READ_AT_A_TIME = 10_000
_ROWS_WRITTEN_AT_A_TIME = 1_000


class Connection(Protocol):
    """The part of a DB-API 2.0 (PEP 249) connection that this module uses."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def commit(self) -> Any:
        """Commit the transaction."""

    def close(self) -> Any:
        """Close the connection."""


class SQLDatasource(Datasource):
    """Read the result of a query.

    Args:
        sql: The query.
        connection_factory: Function without arguments that returns a connection; it is pickled and called in workers.
        sql_params: Values for the placeholders of the query.
        shard_keys: Columns to divide the result by, so that several tasks can read it.
        shard_hash_fn: Function of the database that maps the columns to a number.
    """

    def __init__(
        self,
        sql: str,
        connection_factory: Callable[[], Connection],
        *,
        sql_params: Sequence[Any] | Mapping[str, Any] | None = None,
        shard_keys: Sequence[str] | None = None,
        shard_hash_fn: str = "MD5",
    ) -> None:
        if shard_keys is not None and (isinstance(shard_keys, str) or not shard_keys):
            raise ValueError(f"shard_keys is {shard_keys!r}: pass a list of column names")
        self._sql = sql
        self._connection_factory = connection_factory
        self._params = sql_params
        self._shard_keys = None if shard_keys is None else list(shard_keys)
        self._shard_hash_fn = shard_hash_fn

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Divide the result by the hash of the shard keys, if any."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        queries = [self._sql]
        if self._shard_keys is not None and parallelism > 1 and self._can_shard(parallelism):
            queries = [self._shard_query(parallelism, index) for index in range(parallelism)]
        return [
            ReadTask(functools.partial(self._read, query), unknown, None, per_task_row_limit)
            for query in queries
        ]

    def _shard_query(self, parts: int, index: int, select: str = "*") -> str:
        assert self._shard_keys is not None
        keys = self._shard_keys
        joined = keys[0] if len(keys) == 1 else f"CONCAT({','.join(keys)})"
        part = f"MOD(ABS({self._shard_hash_fn}({joined})), {parts})"
        # A null key has no hash: its rows belong to the first part.
        null = f" OR {part} IS NULL" if index == 0 else ""
        return f"SELECT {select} FROM ({self._sql}) AS T WHERE {part} = {index}{null}"

    def _can_shard(self, parts: int) -> bool:
        try:
            with self._results(self._shard_query(parts, 0, "COUNT(1)")) as cursor:
                cursor.fetchone()
        except Exception as error:  # each database raises its own errors
            _logger.warning(
                "The database cannot divide the query by %s: %s. A single task reads it",
                self._shard_keys,
                error,
            )
            return False
        return True

    def _read(self, query: str) -> Iterator[pa.Table]:
        with self._results(query) as cursor:
            names = [column[0] for column in cursor.description]
            while found := cursor.fetchmany(_ROWS_READ_AT_A_TIME):
                yield rows.to_block_with_objects([dict(zip(names, row, strict=True)) for row in found])

    @contextlib.contextmanager
    def _results(self, query: str) -> Iterator[Any]:
        with contextlib.closing(self._connection_factory()) as connection:
            cursor = connection.cursor()
            if self._params is None:
                cursor.execute(query)
            else:
                cursor.execute(query, self._params)
            yield cursor


class SQLDatasink(Datasink[None]):
    """Write rows with a statement.

    Each task writes its rows in one transaction. A retry of a task that failed after the commit duplicates its rows,
    unless the statement is idempotent.

    Args:
        sql: An `INSERT` with one placeholder per column, in the order of the columns.
        connection_factory: Function without arguments that returns a connection; it is pickled and called in workers.
    """

    def __init__(self, sql: str, connection_factory: Callable[[], Connection]) -> None:
        self._sql = sql
        self._connection_factory = connection_factory

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        """Write the blocks of one task."""
        with contextlib.closing(self._connection_factory()) as connection:
            cursor = connection.cursor()
            for block in blocks:
                values = zip(*(column.to_pylist() for column in block.columns), strict=True)
                while found := list(itertools.islice(values, _ROWS_WRITTEN_AT_A_TIME)):
                    cursor.executemany(self._sql, found)
            connection.commit()


def snowflake_connection_factory(parameters: dict[str, Any], caller: str) -> Callable[[], Any]:
    """Return a function that opens a connection to Snowflake; each task calls it.

    Args:
        parameters: Arguments of `snowflake.connector.connect`.
        caller: The public call that needs the connection.
    """
    _snowflake_connector(caller)
    return functools.partial(_connect_snowflake, dict(parameters), caller)


def _connect_snowflake(parameters: dict[str, Any], caller: str) -> Any:
    return _snowflake_connector(caller).connect(**parameters)


def _snowflake_connector(caller: str) -> Any:
    return _optional.load("snowflake.connector", caller, "snowflake-connector-python")
