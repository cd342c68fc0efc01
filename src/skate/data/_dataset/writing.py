"""Operations that write a dataset."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from skate.data._compute import compute_of
from skate.data._dataset.base import Plan
from skate.data._exec.writing import result_of
from skate.data._plan import nodes
from skate.data.datasource import Datasink, SaveMode


class Writing(Plan):
    """The part of a dataset's API that writes."""

    def write_datasink(
        self,
        datasink: Datasink[Any],
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Write to a sink of your own.

        Args:
            datasink: Gets the blocks, in tasks.
            ray_remote_args: Options of the tasks.
            concurrency: How many tasks at a time.
        """
        compute = compute_of(False, None, concurrency, ray_remote_args or {})
        if not datasink.supports_distributed_writes:
            compute = compute_of(False, None, 1, ray_remote_args or {})
        node = nodes.Write(self._node, datasink, uuid.uuid4().hex, compute)
        datasink.on_write_start(self._known_schema())
        try:
            reports = list(self._tables(node))
        except Exception as error:
            datasink.on_write_failed(error)
            raise
        datasink.on_write_complete(result_of(reports))

    def _known_schema(self) -> Any:
        schema = self.schema(fetch_if_missing=False)  # type: ignore[attr-defined]
        return None if schema is None else schema.base_schema

    def write_parquet(
        self,
        path: str,
        *,
        partition_cols: list[str] | None = None,
        filesystem: Any = None,
        try_create_dir: bool = True,
        arrow_open_stream_args: dict[str, Any] | None = None,
        filename_provider: Any = None,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        num_rows_per_file: int | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        mode: SaveMode = SaveMode.APPEND,
        **arrow_parquet_args: Any,
    ) -> None:
        """Write Parquet files into a folder.

        Args:
            path: The folder: a path, or a URI such as `s3://bucket/folder`.
            partition_cols: Put rows into folders named by the values of these columns.
            filesystem: Where to write, if the path does not say.
            try_create_dir: Make the folder if it is not there.
            arrow_open_stream_args: For opening files.
            filename_provider: Names the files.
            arrow_parquet_args_fn: Returns further arguments of pyarrow's Parquet writer.
            min_rows_per_file: Rows in a file at least, as long as there are some.
            max_rows_per_file: Rows in a file at most.
            num_rows_per_file: An older name of `min_rows_per_file`.
            ray_remote_args: Options of the tasks.
            concurrency: How many files at a time.
            mode: What is done if the folder has files: append, overwrite, ignore, or error.
            **arrow_parquet_args: Further arguments of pyarrow's Parquet writer.
        """
        from skate.data._io.parquet_sink import ParquetDatasink

        sink = ParquetDatasink(
            path,
            partition_cols=partition_cols,
            arrow_parquet_args_fn=arrow_parquet_args_fn,
            arrow_parquet_args=arrow_parquet_args,
            min_rows_per_file=min_rows_per_file or num_rows_per_file,
            max_rows_per_file=max_rows_per_file,
            filesystem=filesystem,
            try_create_dir=try_create_dir,
            open_stream_args=arrow_open_stream_args,
            filename_provider=filename_provider,
            mode=mode,
        )
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_csv(
        self,
        path: str,
        *,
        arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write CSV files into a folder; arguments as in `write_parquet`, and those of pyarrow's CSV writer."""
        from skate.data._io.csv import CSVDatasink

        file_args, own = _of_files(options)
        sink = CSVDatasink(path, arrow_csv_args_fn=arrow_csv_args_fn, arrow_csv_args=own, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_json(
        self,
        path: str,
        *,
        pandas_json_args_fn: Callable[[], dict[str, Any]] | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write JSON files into a folder, one row in a line; arguments as in `write_parquet`, and those of pandas."""
        from skate.data._io.json import JSONDatasink

        file_args, own = _of_files(options)
        sink = JSONDatasink(path, pandas_json_args_fn=pandas_json_args_fn, pandas_json_args=own, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_numpy(
        self,
        path: str,
        *,
        column: str,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write a column to `.npy` files in a folder; other arguments as in `write_parquet`."""
        from skate.data._io.numpy import NumpyDatasink

        file_args, _ = _of_files(options)
        sink = NumpyDatasink(path, column, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_images(
        self,
        path: str,
        column: str,
        file_format: str = "png",
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write a column of images to a folder, one file for each; other arguments as in `write_parquet`."""
        from skate.data._io.images import ImageDatasink

        file_args, _ = _of_files(options)
        sink = ImageDatasink(path, column, file_format=file_format, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_orc(
        self,
        path: str,
        *,
        arrow_orc_args_fn: Callable[[], dict[str, Any]] | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write ORC files into a folder; arguments as in `write_parquet`, and those of pyarrow's ORC writer."""
        from skate.data._io.orc import ORCDatasink

        file_args, own = _of_files(options)
        sink = ORCDatasink(path, arrow_orc_args_fn=arrow_orc_args_fn, arrow_orc_args=own, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_tfrecords(
        self,
        path: str,
        *,
        tf_schema: Any = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write TFRecord files into a folder; other arguments as in `write_parquet`."""
        from skate.data._io.tfrecords import TFRecordDatasink

        file_args, _ = _of_files(options)
        sink = TFRecordDatasink(path, tf_schema=tf_schema, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_webdataset(
        self,
        path: str,
        *,
        encoder: Any = True,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write WebDataset archives into a folder; other arguments as in `write_parquet`."""
        from skate.data._io.webdataset import WebDatasetDatasink

        file_args, _ = _of_files(options)
        sink = WebDatasetDatasink(path, encoder=encoder, **file_args)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_sql(
        self,
        sql: str,
        connection_factory: Callable[[], Any],
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Give rows to a statement of a database, such as `INSERT INTO names VALUES (?, ?)`.

        Args:
            sql: The statement, with a placeholder for each column.
            connection_factory: Returns a connection of a DB-API module, in each task.
            ray_remote_args: Options of the tasks.
            concurrency: How many tasks at a time.
        """
        from skate.data._io.sql import SQLDatasink

        sink = SQLDatasink(sql, connection_factory)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_lance(
        self,
        path: str,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write a Lance table; options are those of its sink: `schema`, `mode`, `max_rows_per_file` and so on."""
        from skate.data._io.lance import LanceDatasink

        self.write_datasink(
            LanceDatasink(path, **options), ray_remote_args=ray_remote_args, concurrency=concurrency
        )

    def write_delta(
        self,
        path: str,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write to a Delta table; options are those of its sink: `mode`, `partition_by`, `schema_mode`."""
        from skate.data._io.delta import DeltaDatasink

        self.write_datasink(
            DeltaDatasink(path, **options), ray_remote_args=ray_remote_args, concurrency=concurrency
        )

    def write_iceberg(
        self,
        table_identifier: str,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Write to an Iceberg table; options are those of its sink: `catalog_kwargs`, `mode` and so on."""
        from skate.data._io.iceberg import IcebergDatasink

        sink = IcebergDatasink(table_identifier, **options)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_mongo(
        self,
        uri: str,
        database: str,
        collection: str,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Write to a MongoDB collection."""
        from skate.data._io.mongo import MongoDatasink

        sink = MongoDatasink(uri, database, collection)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_bigquery(
        self,
        project_id: str,
        dataset: str,
        max_retry_cnt: int = 10,
        overwrite_table: bool | None = True,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Write to a BigQuery table."""
        from skate.data._io.bigquery import BigQueryDatasink

        sink = BigQueryDatasink(project_id, dataset, max_retry_cnt, overwrite_table)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)


_FILE_ARGS = (
    "filesystem",
    "try_create_dir",
    "filename_provider",
    "min_rows_per_file",
    "mode",
    "dataset_uuid",
)


def _of_files(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what is said about files from what is for a format's own writer."""
    own = dict(options)
    found = {name: own.pop(name) for name in _FILE_ARGS if name in own}
    if "arrow_open_stream_args" in own:
        found["open_stream_args"] = own.pop("arrow_open_stream_args")
    rows = own.pop("num_rows_per_file", None)
    if rows is not None:
        found.setdefault("min_rows_per_file", rows)
    return found, own
