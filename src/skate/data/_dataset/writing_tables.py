"""Methods that write to custom sinks, databases and versioned tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate.data._arguments import NON_NEGATIVE, check_protocol, checked
from skate.data._catalogs import resolve_iceberg_table, resolve_table
from skate.data._compute import compute_of
from skate.data._dataset.base import PlanHolder
from skate.data._exec.writing import result_of
from skate.data._io.clickhouse import ClickHouseTableSettings, SinkMode
from skate.data._plan import nodes
from skate.data.checkpoint.interfaces import InvalidCheckpointingOperators
from skate.data.datasource import Datasink, SaveMode

if TYPE_CHECKING:
    import pyarrow as pa

    from skate.data._checkpointing.write import CheckpointedWrite
    from skate.data.catalog import Catalog


class TableWriteMethods(PlanHolder):
    """Methods of `Dataset` that write to other targets than files."""

    @checked("datasink")
    def write_datasink(
        self,
        datasink: Datasink[Any],
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Write to a custom sink.

        Args:
            datasink: The sink, which gets the blocks in tasks.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Record the written parts, so that the same program can resume after a kill. Supported by sinks
                derived from `BlockBasedFileDatasink` or `RowBasedFileDatasink`.

        Raises:
            ResumeError: The sink or the plan is not resumable, or another program writes to the folder.
            InvalidCheckpointingOperators: `DataContext.checkpoint_config` is set, and the plan or the sink does not
                support checkpoints.
        """
        check_protocol("datasink", datasink, "write", "a Datasink")
        compute = compute_of(False, None, concurrency, ray_remote_args or {})
        if not datasink.supports_distributed_writes:
            compute = compute_of(False, None, 1, ray_remote_args or {})
        node = nodes.Write(self._node, datasink, uuid.uuid4().hex, compute)
        checkpointed = self._make_checkpointed_write(node, resume)
        write: Callable[[], Any] = lambda: result_of(list(self._tables(node)))  # noqa: E731
        if resume:
            write = self._make_resumable_write(node)
        elif checkpointed is not None:
            write = checkpointed
        schema = self.schema(fetch_if_missing=False)  # type: ignore[attr-defined]
        datasink.on_write_start(None if schema is None else schema.base_schema)
        try:
            result = write()
        except Exception as error:
            datasink.on_write_failed(error)
            raise
        if result is not None:
            datasink.on_write_complete(result)
        if checkpointed is not None:
            checkpointed.finish()

    def _make_checkpointed_write(self, node: nodes.Write, resume: bool) -> CheckpointedWrite | None:
        config = self._context.checkpoint_config
        if config is None:
            return None
        if resume:
            raise InvalidCheckpointingOperators(
                "resume=True and DataContext.checkpoint_config are two ways to resume a write: leave out resume to "
                "record ids, or set checkpoint_config = None"
            )
        from skate.data._checkpointing.write import CheckpointedWrite

        return CheckpointedWrite(node, config, self._run)

    def _make_resumable_write(self, node: nodes.Write) -> Callable[[], Any]:
        from skate.data._resuming.job import ResumableWrite

        return ResumableWrite(node, self._context, self._runs, self._run)

    @checked()
    def write_sql(
        self,
        sql: str,
        connection_factory: Callable[[], Any],
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Execute a database statement with each row, such as `INSERT INTO names VALUES (?, ?)`.

        Args:
            sql: The statement, with a placeholder for each column.
            connection_factory: Returns a connection of a DB-API module, in each task.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by databases: raises `ResumeError`.
        """
        from skate.data._io.sql import SQLDatasink

        sink = SQLDatasink(sql, connection_factory)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    @checked()
    def write_lance(
        self,
        path: str,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
        **options: Any,
    ) -> None:
        """Write a Lance table.

        Args:
            path: The path or URI of the table.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by tables that are committed as a whole: raises `ResumeError`.
            **options: Options of the sink: `schema`, `mode`, `max_rows_per_file` and so on.
        """
        from skate.data._io.lance import LanceDatasink

        sink = LanceDatasink(path, **options)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    @checked()
    def write_delta(
        self,
        path: str,
        *,
        catalog: Catalog | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
        **options: Any,
    ) -> None:
        """Write to a Delta table.

        Args:
            path: The path or URI of the table, or its name in the catalog.
            catalog: Finds the table by its name.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by tables that are committed as a whole: raises `ResumeError`.
            **options: Options of the sink: `mode`, `partition_by`, `schema_mode`.
        """
        from skate.data._io.delta import DeltaDatasink

        if catalog is not None:
            found = resolve_table(catalog, path, "delta", "write")
            given = {key: value for key, value in options.items() if value is not None}
            path, options = found.path, {"filesystem": found.filesystem, **given}
            options["storage_options"] = {**(found.storage_options or {}), **given.get("storage_options", {})}
        sink = DeltaDatasink(path, **options)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    @checked("mode")
    def write_iceberg(
        self,
        table_identifier: str,
        catalog_kwargs: dict[str, Any] | None = None,
        catalog: Catalog | None = None,
        snapshot_properties: dict[str, str] | None = None,
        mode: SaveMode = SaveMode.APPEND,
        overwrite_filter: Any = None,
        upsert_kwargs: dict[str, Any] | None = None,
        overwrite_kwargs: dict[str, Any] | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Write to an Iceberg table; needs pyiceberg.

        Args:
            table_identifier: The name of the table in the catalog; the table must exist.
            catalog_kwargs: Arguments of `pyiceberg.catalog.load_catalog`.
            catalog: Finds the table by its name, in place of `catalog_kwargs`.
            snapshot_properties: Properties of the snapshot.
            mode: Append, overwrite, or upsert, which replaces rows with the same key and adds the others.
            overwrite_filter: The rows to replace, as an expression such as `col("day") >= "2024-10-28"`; all rows by
                default.
            upsert_kwargs: `join_cols`, the key columns (the table's identifier fields if not given), `case_sensitive`
                and `branch`.
            overwrite_kwargs: `case_sensitive` and `branch`.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by tables that are committed as a whole: raises `ResumeError`.
        """
        from skate.data._io.iceberg_sink import IcebergDatasink

        if catalog is not None:
            table_identifier, catalog_kwargs = resolve_iceberg_table(
                catalog, table_identifier, catalog_kwargs, "write"
            )
        sink = IcebergDatasink(
            table_identifier,
            catalog_kwargs,
            snapshot_properties,
            mode,
            overwrite_filter,
            upsert_kwargs,
            overwrite_kwargs,
        )
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    @checked()
    def write_mongo(
        self,
        uri: str,
        database: str,
        collection: str,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Write to a MongoDB collection.

        Args:
            uri: The URI of the server.
            database: The database.
            collection: The collection.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by databases: raises `ResumeError`.
        """
        from skate.data._io.mongo import MongoDatasink

        sink = MongoDatasink(uri, database, collection)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    @checked(max_retry_cnt=NON_NEGATIVE)
    def write_bigquery(
        self,
        project_id: str,
        dataset: str,
        max_retry_cnt: int = 10,
        overwrite_table: bool | None = True,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Write to a BigQuery table.

        Args:
            project_id: The project of the table.
            dataset: The table, as `dataset.table`.
            max_retry_cnt: Maximum number of attempts.
            overwrite_table: Replace the rows of the table.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by databases: raises `ResumeError`.
        """
        from skate.data._io.bigquery import BigQueryDatasink

        sink = BigQueryDatasink(project_id, dataset, max_retry_cnt, overwrite_table)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    def write_snowflake(
        self,
        table: str,
        connection_parameters: dict[str, Any],
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Insert rows into a Snowflake table with the columns of the dataset; needs snowflake-connector-python.

        Args:
            table: The name of the table, which must exist.
            connection_parameters: Arguments of `snowflake.connector.connect`: `user`, `account` and so on.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by databases: raises `ResumeError`.
        """
        from skate.data._io.sql import snowflake_connection_factory

        connect = snowflake_connection_factory(connection_parameters, "write_snowflake")
        values = ", ".join(["%s"] * len(self.columns() or ()))  # type: ignore[attr-defined]
        statement = f"INSERT INTO {table} VALUES ({values})"
        self.write_sql(statement, connect, ray_remote_args, concurrency, resume)

    def write_clickhouse(
        self,
        table: str,
        dsn: str,
        *,
        mode: SinkMode = SinkMode.CREATE,
        schema: pa.Schema | None = None,
        client_settings: dict[str, Any] | None = None,
        client_kwargs: dict[str, Any] | None = None,
        table_settings: ClickHouseTableSettings | None = None,
        max_insert_block_rows: int | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Insert rows into a ClickHouse table; needs clickhouse-connect.

        Args:
            table: The name of the table, as `database.table`.
            dsn: The address of the server: `clickhouse+http://user:password@host:8123/database`.
            mode: Create a table, append to one, or replace one.
            schema: The schema of a created table; that of the dataset by default. Rows are cast to it.
            client_settings: Settings of the session.
            client_kwargs: Further arguments of `clickhouse_connect.get_client`.
            table_settings: Settings of a created table, such as engine and order.
            max_insert_block_rows: Number of rows per insert; a whole block by default.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by databases: raises `ResumeError`.
        """
        from skate.data._io.clickhouse import ClickHouseDatasink

        sink = ClickHouseDatasink(
            table, dsn, mode, schema, client_settings, client_kwargs, table_settings, max_insert_block_rows
        )
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    def write_kafka(
        self,
        topic: str,
        bootstrap_servers: str,
        key_field: str | None = None,
        key_serializer: str = "string",
        value_serializer: str = "json",
        producer_config: dict[str, Any] | None = None,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        resume: bool = False,
    ) -> None:
        """Send a message to a Kafka topic for each row; needs confluent-kafka.

        Args:
            topic: The topic.
            bootstrap_servers: Brokers, as `host:port`.
            key_field: The column of the message key.
            key_serializer: The encoding of the key: "json", "string" or "bytes".
            value_serializer: The encoding of the row.
            producer_config: Settings of librdkafka.
            ray_remote_args: Options of the tasks.
            concurrency: Number of concurrent tasks.
            resume: Not supported by topics: raises `ResumeError`.
        """
        from skate.data._io.kafka import KafkaDatasink

        sink = KafkaDatasink(
            topic, bootstrap_servers, key_field, key_serializer, value_serializer, producer_config
        )
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)
