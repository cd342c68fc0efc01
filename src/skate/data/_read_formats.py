"""Readers of formats that need a library of their own, or that fewer programs use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from skate.data._arguments import NON_NEGATIVE, POSITIVE, checked
from skate.data._read_options import (
    FileOptions,
    TaskOptions,
    dataset_of,
    deprecated,
    file_arguments,
    parted,
)
from skate.data.dataset import Dataset

__all__ = [
    "from_huggingface",
    "from_torch",
    "read_arrow",
    "read_audio",
    "read_avro",
    "read_bigquery",
    "read_delta",
    "read_iceberg",
    "read_lance",
    "read_mongo",
    "read_orc",
    "read_sql",
    "read_tfrecords",
    "read_videos",
    "read_webdataset",
]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@checked()
def read_arrow(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Return a dataset of Arrow IPC files, streams, or Feather files of version 2.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.arrow_ipc import ArrowDatasource

    return dataset_of(ArrowDatasource(paths, **file_arguments(options)), options)


@checked()
def read_orc(paths: Paths, *, columns: list[str] | None = None, **options: Unpack[FileOptions]) -> Dataset:
    """Return a dataset of ORC files.

    Args:
        paths: Files, folders, globs, or URIs.
        columns: Read only these.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.orc import ORCDatasource

    return dataset_of(ORCDatasource(paths, columns=columns, **file_arguments(options)), options)


@checked()
def read_avro(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Return a dataset of Avro files; needs fastavro.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.avro import AvroDatasource

    return dataset_of(AvroDatasource(paths, **file_arguments(options)), options)


@checked()
def read_audio(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Return a dataset of sound files, in columns `amplitude` and `sample_rate`; needs soundfile.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.audio import AudioDatasource

    return dataset_of(AudioDatasource(paths, **file_arguments(options)), options)


@checked("resize", fps=POSITIVE)
def read_videos(
    paths: Paths,
    *,
    include_timestamps: bool = False,
    fps: int | None = None,
    resize: tuple[int, int] | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Return a dataset of the frames of videos; needs av.

    Args:
        paths: Files, folders, globs, or URIs.
        include_timestamps: Add a column that says when a frame is shown.
        fps: Frames of each second; all of them if not given.
        resize: Height and width to bring frames to.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.videos import VideoDatasource

    source = VideoDatasource(
        paths, include_timestamps=include_timestamps, fps=fps, resize=resize, **file_arguments(options)
    )
    return dataset_of(source, options)


@checked()
def read_webdataset(
    paths: Paths,
    *,
    decoder: Any = True,
    fileselect: Sequence[str] | Callable[[str], bool] | None = None,
    filerename: Sequence[tuple[str, str]] | Callable[[str], str] | None = None,
    suffixes: Sequence[str] | Callable[[str], bool] | None = None,
    verbose_open: bool = False,
    expand_json: bool = False,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Return a dataset of WebDataset archives: the files of an archive that share a name are a row.

    Args:
        paths: Files, folders, globs, or URIs.
        decoder: True decodes by extensions; `"PIL"` does too, and makes Pillow images; a function gets a row and
            returns one; a list applies several. None leaves bytes.
        fileselect: Files of an archive to take: patterns, or a function of a name.
        filerename: What files are called instead: pairs of old and new patterns, or a function.
        suffixes: Columns to take: patterns, or a function of a name.
        verbose_open: Accepted as in Ray.
        expand_json: Make columns of the keys of a `json` column.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.webdataset import WebDatasetDatasource

    source = WebDatasetDatasource(
        paths,
        decoder=decoder,
        fileselect=fileselect,
        filerename=filerename,
        suffixes=suffixes,
        verbose_open=verbose_open,
        expand_json=expand_json,
        **file_arguments(options),
    )
    return dataset_of(source, options)


@checked()
def read_tfrecords(paths: Paths, *, tf_schema: Any = None, **options: Any) -> Dataset:
    """Return a dataset of TFRecord files of `tf.train.Example` messages; needs protobuf and google-crc32c.

    Args:
        paths: Files, folders, globs, or URIs.
        tf_schema: Types of the columns.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.tfrecords import TFRecordDatasource

    options.pop("tfx_read_options", None)
    return dataset_of(TFRecordDatasource(paths, tf_schema=tf_schema, **file_arguments(options)), options)


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
        sql, connection_factory, sql_params=sql_params, shard_keys=shard_keys, shard_hash_fn=shard_hash_fn
    )
    return dataset_of(source, options)


@checked("version")
def read_lance(
    uri: str,
    *,
    version: int | str | None = None,
    columns: list[str] | None = None,
    filter: str | None = None,
    storage_options: dict[str, str] | None = None,
    scanner_options: dict[str, Any] | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of a Lance table; needs pylance."""
    from skate.data._io.lance import LanceDatasource

    if filter is not None:
        deprecated("`filter=` on `read_lance`", "call `filter(expr=...)` on the dataset")
    source = LanceDatasource(uri, version, columns, filter, storage_options, scanner_options)
    return dataset_of(source, options)


@checked(version=NON_NEGATIVE)
def read_delta(
    path: str,
    version: int | None = None,
    *,
    storage_options: dict[str, Any] | None = None,
    columns: list[str] | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Return a dataset of a Delta table, the newest version or a given one; needs deltalake."""
    from skate.data._io.delta import delta_source

    arguments = file_arguments(options)
    source = delta_source(path, version, storage_options=storage_options, columns=columns, **arguments)
    return dataset_of(source, options)


@checked()
def read_iceberg(
    *,
    table_identifier: str,
    row_filter: Any = None,
    selected_fields: tuple[str, ...] = ("*",),
    snapshot_id: int | None = None,
    scan_kwargs: dict[str, Any] | None = None,
    catalog_kwargs: dict[str, Any] | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of an Iceberg table; needs pyiceberg.

    Files that no filter of the dataset lets through, and columns that nobody uses, are not read.

    Args:
        table_identifier: Its name in the catalog: `"db.table"`.
        row_filter: An expression of `pyiceberg`, or its text. Ray deprecates it for `filter`.
        selected_fields: Which columns. Ray deprecates it for `select_columns`.
        snapshot_id: Which snapshot; the newest, as it is now, if not given.
        scan_kwargs: More options for `Table.scan` of `pyiceberg`.
        catalog_kwargs: For `pyiceberg.catalog.load_catalog`; `name` is the catalog's.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.iceberg import IcebergDatasource

    if row_filter is not None:
        deprecated("`row_filter=` on `read_iceberg`", "call `filter(expr=...)` on the dataset")
    if tuple(selected_fields) != ("*",):
        deprecated("`selected_fields=` on `read_iceberg`", "call `select_columns([...])` on the dataset")
    source = IcebergDatasource(
        table_identifier, row_filter, selected_fields, snapshot_id, scan_kwargs, catalog_kwargs
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

    given, own = parted(options)
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


@checked(override_num_blocks=POSITIVE)
def from_huggingface(
    dataset: Any,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Return a dataset of one of Hugging Face's: a Dataset, whose Arrow files are not copied, or an IterableDataset.

    Args:
        dataset: One split: `load_dataset(...)["train"]`.
        parallelism: An older name of `override_num_blocks`.
        concurrency: How many tasks at a time.
        override_num_blocks: How many parts to read in; chosen by size if not given.
    """
    from skate.data._io.huggingface import HuggingFaceDatasource

    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return dataset_of(HuggingFaceDatasource(dataset), options)


@checked()
def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """Return a dataset of one of torch's, in a column `item`: one with `__getitem__` is read by several tasks."""
    from skate.data._io.torch_datasets import TorchDatasource

    return dataset_of(TorchDatasource(dataset, local_read=local_read), {})
