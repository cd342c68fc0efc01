"""Datasource and datasink for BigQuery tables and queries."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skate.air import _optional
from skate.data._block import tables
from skate.data._io import retrying
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext
from skate.data.datasource.datasource import Datasource, ReadTask

_PACKAGE = "google-cloud-bigquery"


class BigQueryDatasource(Datasource):
    """Read a table or the result of a query through the BigQuery Storage API.

    Args:
        project_id: The Google Cloud project.
        dataset: The table to read, as `"dataset.table"`.
        query: The query to run instead.
    """

    def __init__(self, project_id: str, dataset: str | None = None, query: str | None = None) -> None:
        _optional.load("google.cloud.bigquery", "read_bigquery", _PACKAGE)
        _optional.load("google.cloud.bigquery_storage", "read_bigquery", f"{_PACKAGE}-storage")
        if (dataset is None) == (query is None):
            raise ValueError(
                "pass either dataset='dataset.table' or query='SELECT …' to read_bigquery, and not both"
            )
        if dataset is not None:
            _split_name(dataset)
        self._project = project_id
        self._dataset = dataset
        self._query = query

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Open a read session with one stream per task."""
        storage = _optional.load("google.cloud.bigquery_storage", "read_bigquery", f"{_PACKAGE}-storage")
        client = storage.BigQueryReadClient()
        dataset, table = _split_name(self._dataset) if self._dataset is not None else self._run_query()
        session = client.create_read_session(
            parent=f"projects/{self._project}",
            read_session=storage.types.ReadSession(
                table=f"projects/{self._project}/datasets/{dataset}/tables/{table}",
                data_format=storage.types.DataFormat.ARROW,
            ),
            max_stream_count=parallelism,
        )
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [
            ReadTask(functools.partial(_read_stream, stream.name), unknown, None, per_task_row_limit)
            for stream in session.streams
        ]

    def _run_query(self) -> tuple[str, str]:
        """Run the query and return the dataset and table that hold its result."""
        bigquery = _optional.load("google.cloud.bigquery", "read_bigquery", _PACKAGE)
        job = bigquery.Client(project=self._project).query(self._query)
        job.result()
        destination = str(job.destination).split(".")
        return destination[-2], destination[-1]


class BigQueryDatasink(Datasink[None]):
    """Load rows into a table.

    Args:
        project_id: The Google Cloud project.
        dataset: The target, as `"dataset.table"`; a missing dataset or table is created.
        max_retry_cnt: How often to retry a load that the service rejected because of its rate limit.
        overwrite_table: Delete the table first.
    """

    def __init__(
        self, project_id: str, dataset: str, max_retry_cnt: int = 10, overwrite_table: bool | None = True
    ) -> None:
        _optional.load("google.cloud.bigquery", "write_bigquery", _PACKAGE)
        self._project = project_id
        self._dataset, self._table = _split_name(dataset)
        self._retries = max_retry_cnt
        self._overwrites = bool(overwrite_table)

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Create the dataset, and delete the table if it is to be replaced."""
        client = self._client()
        client.create_dataset(f"{self._project}.{self._dataset}", exists_ok=True)
        if self._overwrites:
            client.delete_table(f"{self._project}.{self._dataset}.{self._table}", not_found_ok=True)

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        """Load the blocks of one task."""
        bigquery = _optional.load("google.cloud.bigquery", "write_bigquery", _PACKAGE)
        block = tables.concat(list(blocks) or [pa.table({})])
        if block.num_rows == 0:
            return
        file = io.BytesIO()
        pq.write_table(block, file)
        config = bigquery.LoadJobConfig(
            autodetect=True,
            source_format=bigquery.SourceFormat.PARQUET,
            write_disposition=bigquery.WriteDisposition.WRITE_APPEND,
        )

        def load() -> None:
            file.seek(0)
            target = f"{self._project}.{self._dataset}.{self._table}"
            self._client().load_table_from_file(
                file, target, job_config=config, num_retries=self._retries
            ).result()

        retrying.call(load, f"loading into {self._dataset}.{self._table}")

    def _client(self) -> Any:
        bigquery = _optional.load("google.cloud.bigquery", "write_bigquery", _PACKAGE)
        return bigquery.Client(project=self._project)


def _split_name(dataset: str) -> tuple[str, str]:
    names = dataset.split(".")
    if len(names) != 2 or not all(names):
        raise ValueError(f"dataset is {dataset!r}: pass 'dataset.table'")
    return names[0], names[1]


def _read_stream(name: str) -> Iterator[pa.Table]:
    storage = _optional.load("google.cloud.bigquery_storage", "read_bigquery", f"{_PACKAGE}-storage")
    rows = storage.BigQueryReadClient().read_rows(name).rows()
    for page in rows.pages:
        yield pa.Table.from_batches([page.to_arrow()])
