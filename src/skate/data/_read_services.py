"""Readers for databases, services and message queues."""

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
    """Create a dataset from the result of a query.

    Args:
        sql: The query.
        connection_factory: Function that returns a DB-API connection; each task calls it.
        sql_params: Values for the placeholders of the query.
        shard_keys: Columns whose hash divides the rows between several tasks.
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
    """Create a dataset from the result of a Snowflake query; needs snowflake-connector-python.

    Args:
        sql: The query.
        connection_parameters: Arguments of `snowflake.connector.connect`: `user`, `account` and so on.
        shard_keys: Columns whose hash divides the rows between several tasks.
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
    """Create a dataset from a ClickHouse table or view; needs clickhouse-connect.

    Several tasks read a table with `order_by` and without a filter; otherwise one task reads it.

    Args:
        table: Name of the table, as `database.table`.
        dsn: Address of the server: `clickhouse+http://user:password@host:8123/database`.
        columns: Columns to read; all by default.
        filter: The condition of a `WHERE` clause.
        order_by: Columns to order by, and whether the order is descending.
        client_settings: Settings of the session.
        client_kwargs: Further arguments of `clickhouse_connect.get_client`.
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
    """Create a dataset from a Databricks table or the result of a query; needs databricks-sdk.

    A SQL warehouse runs the query when the dataset is created; tasks read the chunks of its result.

    Args:
        warehouse_id: The warehouse that runs the query.
        table: Name of the table, with or without catalog and schema.
        query: A query, instead of a table.
        catalog: Default catalog for unqualified names.
        schema: Default schema for unqualified names.
        credential_provider: Provider of host and token; by default the environment variables DATABRICKS_HOST and
            DATABRICKS_TOKEN.
        **options: Those of `TaskOptions`.

    Raises:
        ValueError: Not exactly one of `table` and `query` is given, or credentials are missing.
        RuntimeError: The query failed.
    """
    from skate.data._io.databricks import DatabricksDatasource

    if (table is None) == (query is None):
        raise ValueError(
            f"pass either table or query to read_databricks_tables; got table={table!r}, query={query!r}"
        )
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
    """Create a dataset from a table of a Delta Sharing server; needs delta-sharing.

    Args:
        url: The profile file and the table: `<profile>#<share>.<schema>.<table>`.
        limit: Hint for the server, which may stop listing files once they hold this many rows.
        version: Version of the table to read; the latest by default.
        timestamp: Read the version at this time.
        json_predicate_hints: Predicate as JSON; the server may skip files that cannot match it.
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
    """Create a dataset from the messages of Kafka topics between two offsets; needs confluent-kafka.

    One task reads each partition. Keys and values are bytes.

    Args:
        topics: One topic or a list of topics.
        bootstrap_servers: Brokers, as `host:port`.
        trigger: `"once"`: read the messages that exist now.
        start_offset: The first message: an offset, a time, `"earliest"`, or a dict of offsets by topic and partition.
        end_offset: The end, exclusive: an offset, a time, `"latest"`, or such a dict. A time without a zone is in UTC.
        kafka_auth_config: Credentials under the names that kafka-python uses. Deprecated in Ray: use `consumer_config`.
        consumer_config: Settings of librdkafka.
        timeout_ms: How long a task waits for its messages before it returns those it has; without limit by default.
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
    """Create a dataset from a MongoDB collection or the result of a pipeline; needs pymongo."""
    from skate.data._io.mongo import MongoDatasource

    given, own = split_options(options)
    return dataset_of(
        MongoDatasource(uri, database, collection, pipeline=pipeline, schema=schema, **own), given
    )


@checked()
def read_bigquery(
    project_id: str, dataset: str | None = None, query: str | None = None, **options: Unpack[TaskOptions]
) -> Dataset:
    """Create a dataset from a BigQuery table or the result of a query; needs google-cloud-bigquery."""
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
    """Create a dataset from a table of Unity Catalog. Deprecated in Ray in favor of readers with `catalog=`.

    Args:
        table: Name of the table: `catalog.schema.table`.
        url: Address of the workspace.
        token: Token of the workspace.
        credential_provider: Provider of both, instead of `url` and `token`.
        data_format: `"delta"`, `"parquet"` or `"iceberg"`; looked up in the catalog by default.
        region: Region of the S3 bucket.
        reader_kwargs: Further arguments of the reader of the format.

    Raises:
        ValueError: No reader supports the format of the table.
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
