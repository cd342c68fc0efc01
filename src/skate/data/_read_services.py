"""Readers of databases, of services and of message queues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack

from skate.data._arguments import checked
from skate.data._read_options import TaskOptions, dataset_of, split_options, warn_deprecated
from skate.data.dataset import Dataset

if TYPE_CHECKING:
    from skate.data._io.databricks import DatabricksCredentialProvider
    from skate.data._io.kafka import KafkaAuthConfig

__all__ = [
    "read_bigquery",
    "read_clickhouse",
    "read_databricks_tables",
    "read_delta_sharing_tables",
    "read_kafka",
    "read_mongo",
    "read_snowflake",
    "read_sql",
    "read_unity_catalog",
]


@checked()
def read_sql(
    sql: str,
    connection_factory: Callable[[], Any],
    *,
    sql_params: Any = None,
    shard_keys: list[str] | None = None,
    shard_hash_fn: str = "MD5",
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of what a query gives.

    Args:
        sql: The query.
        connection_factory: Returns a connection of a DB-API module, in each task.
        sql_params: What placeholders in the query stand for.
        shard_keys: Columns by whose hash the rows are parted, to be read by several tasks.
        shard_hash_fn: The hash function of the database.
        **options: Those of `TaskOptions`.

    >>> import sqlite3
    >>> read_sql("SELECT 1 AS one", lambda: sqlite3.connect(":memory:")).take_all()
    [{'one': 1}]
    """
    from skate.data._io.sql import SQLDatasource

    source = SQLDatasource(
        sql,
        connection_factory,
        sql_params=sql_params,
        shard_keys=shard_keys,
        shard_hash_fn=shard_hash_fn,
    )
    return dataset_of(source, options)


@checked()
def read_snowflake(
    sql: str,
    connection_parameters: dict[str, Any],
    *,
    shard_keys: list[str] | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of the result of a Snowflake query; needs snowflake-connector-python.

    Args:
        sql: The query.
        connection_parameters: Arguments of `snowflake.connector.connect`: `user`, `account` and so on.
        shard_keys: Columns by whose hash the rows are parted, to be read by several tasks.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.sql import SQLDatasource, snowflake_connection_factory

    connect = snowflake_connection_factory(connection_parameters, "read_snowflake")
    return dataset_of(SQLDatasource(sql, connect, shard_keys=shard_keys, shard_hash_fn="HASH"), options)


@checked()
def read_clickhouse(
    *,
    table: str,
    dsn: str,
    columns: list[str] | None = None,
    filter: str | None = None,
    order_by: tuple[list[str], bool] | None = None,
    client_settings: dict[str, Any] | None = None,
    client_kwargs: dict[str, Any] | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of a ClickHouse table or view; needs clickhouse-connect.

    Several tasks read a table that `order_by` orders and no filter cuts; otherwise one task reads it.

    Args:
        table: Its name, as `database.table`.
        dsn: The address of the server: `clickhouse+http://user:password@host:8123/database`.
        columns: Read only these.
        filter: The condition of a `WHERE` clause.
        order_by: Columns to order by, and whether in descending order.
        client_settings: Settings of the session.
        client_kwargs: More arguments of `clickhouse_connect.get_client`.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.clickhouse import ClickHouseDatasource

    source = ClickHouseDatasource(table, dsn, columns, filter, order_by, client_settings, client_kwargs)
    return dataset_of(source, options)


@checked()
def read_databricks_tables(
    *,
    warehouse_id: str,
    table: str | None = None,
    query: str | None = None,
    catalog: str | None = None,
    schema: str | None = None,
    credential_provider: DatabricksCredentialProvider | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of a Databricks table, or of the result of a query; needs databricks-sdk.

    A SQL warehouse runs the query when the dataset is made; tasks read the chunks of its result.

    Args:
        warehouse_id: The warehouse that runs the query.
        table: Its name, with or without its catalog and schema.
        query: A query, in place of a table.
        catalog: The catalog for names that have none.
        schema: The schema for names that have none.
        credential_provider: Returns host and token; the environment variables DATABRICKS_HOST and DATABRICKS_TOKEN
            have them if not given.
        **options: Those of `TaskOptions`.

    Raises:
        ValueError: Both `table` and `query` are given, or none, or there are no credentials.
        RuntimeError: The query failed.
    """
    from skate.data._io.databricks import DatabricksDatasource

    if (table is None) == (query is None):
        raise ValueError(f"read_databricks_tables takes a table or a query; table={table!r}, query={query!r}")
    statement = f"SELECT * FROM {table}" if query is None else query
    source = DatabricksDatasource(warehouse_id, statement, catalog, schema, credential_provider)
    return dataset_of(source, options)


@checked()
def read_delta_sharing_tables(
    url: str,
    *,
    limit: int | None = None,
    version: int | None = None,
    timestamp: str | None = None,
    json_predicate_hints: str | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of a table that a Delta Sharing server shares; needs delta-sharing.

    Args:
        url: The profile file and the table: `<profile>#<share>.<schema>.<table>`.
        limit: A hint for the server: it may leave out files once it has this many rows.
        version: Which version of the table; the newest if not given.
        timestamp: The version at this time.
        json_predicate_hints: A predicate as JSON, by which the server may leave out files.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.delta_sharing import DeltaSharingDatasource

    return dataset_of(DeltaSharingDatasource(url, json_predicate_hints, limit, version, timestamp), options)


@checked()
def read_kafka(
    topics: str | list[str],
    *,
    bootstrap_servers: str | list[str],
    trigger: Literal["once"] = "once",
    start_offset: int | datetime | str | dict[str, dict[int, int | str]] = "earliest",
    end_offset: int | datetime | str | dict[str, dict[int, int | str]] = "latest",
    kafka_auth_config: KafkaAuthConfig | None = None,
    consumer_config: dict[str, Any] | None = None,
    timeout_ms: int | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of the messages of Kafka topics between two offsets; needs confluent-kafka.

    A task reads each partition. Keys and values are bytes.

    Args:
        topics: One topic, or several.
        bootstrap_servers: Brokers, as `host:port`.
        trigger: `"once"`: the messages that are there now.
        start_offset: The first message: an offset, a time, `"earliest"`, or a dict of offsets by topic and partition.
        end_offset: The message to stop before: an offset, a time, `"latest"`, or such a dict. A time without a zone
            is in UTC.
        kafka_auth_config: Credentials under the names of kafka-python. Ray deprecates it for `consumer_config`.
        consumer_config: Settings of librdkafka.
        timeout_ms: How long a task waits for its messages; it returns those it has then. Without it, a task waits for
            all.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.kafka import KafkaDatasource

    if trigger != "once":
        raise ValueError(f"trigger is {trigger!r}: only 'once' is supported")
    if kafka_auth_config is not None:
        warn_deprecated(
            "`kafka_auth_config` on `read_kafka`", "pass settings of librdkafka as `consumer_config`"
        )
    source = KafkaDatasource(
        topics, bootstrap_servers, start_offset, end_offset, kafka_auth_config, consumer_config, timeout_ms
    )
    return dataset_of(source, options)


@checked()
def read_mongo(
    uri: str,
    database: str,
    collection: str,
    *,
    pipeline: list[dict[str, Any]] | None = None,
    schema: Any = None,
    **options: Any,
) -> Dataset:
    """Return a dataset of a MongoDB collection, or of what a pipeline makes of it; needs pymongo."""
    from skate.data._io.mongo import MongoDatasource

    given, own = split_options(options)
    return dataset_of(
        MongoDatasource(uri, database, collection, pipeline=pipeline, schema=schema, **own), given
    )


@checked()
def read_bigquery(
    project_id: str, dataset: str | None = None, query: str | None = None, **options: Unpack[TaskOptions]
) -> Dataset:
    """Return a dataset of a BigQuery table, or of what a query gives; needs google-cloud-bigquery."""
    from skate.data._io.bigquery import BigQueryDatasource

    return dataset_of(BigQueryDatasource(project_id, dataset, query), options)


@checked()
def read_unity_catalog(
    table: str,
    url: str | None = None,
    token: str | None = None,
    *,
    credential_provider: DatabricksCredentialProvider | None = None,
    data_format: str | None = None,
    region: str | None = None,
    reader_kwargs: dict[str, Any] | None = None,
) -> Dataset:
    """Return a dataset of a table of Unity Catalog. Ray deprecates it for readers with `catalog=`.

    Args:
        table: Its name: `catalog.schema.table`.
        url: The address of the workspace.
        token: A token of the workspace.
        credential_provider: Returns both, in place of `url` and `token`.
        data_format: `"delta"`, `"parquet"` or `"iceberg"`; the catalog is asked if not given.
        region: The region of the S3 bucket.
        reader_kwargs: More arguments of the reader of the format.

    Raises:
        ValueError: The table has a format that has no reader.
    """
    from skate.data import read_api
    from skate.data.catalog import DatabricksUnityCatalog, ReaderFormat

    warn_deprecated(
        "`read_unity_catalog`", "pass `catalog=DatabricksUnityCatalog(...)` to the reader of the format"
    )
    catalog = DatabricksUnityCatalog(
        url=url, token=token, credential_provider=credential_provider, region=region
    )
    found = ReaderFormat(data_format.lower()) if data_format else catalog.infer_format(table)
    given = {**(reader_kwargs or {}), "catalog": catalog}
    if found is ReaderFormat.DELTA:
        return read_api.read_delta(table, **given)
    if found is ReaderFormat.PARQUET:
        return read_api.read_parquet(table, **given)
    if found is ReaderFormat.ICEBERG:
        return read_api.read_iceberg(table_identifier=table, **given)
    raise ValueError(
        f"the format of {table} is unknown: pass data_format, one of {[str(each) for each in ReaderFormat]}"
    )
