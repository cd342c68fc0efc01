"""Readers of formats that need a library of their own, or that fewer programs use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from skate.data._arguments import NON_NEGATIVE, POSITIVE, checked
from skate.data._catalogs import resolve_iceberg_table, resolve_table
from skate.data._read_options import (
    FileOptions,
    TaskOptions,
    dataset_of,
    file_arguments,
    warn_deprecated,
)
from skate.data.dataset import Dataset

if TYPE_CHECKING:
    from skate.data._io.mcap import TimeRange
    from skate.data.catalog import Catalog

__all__ = [
    "from_huggingface",
    "from_torch",
    "read_arrow",
    "read_audio",
    "read_avro",
    "read_delta",
    "read_hudi",
    "read_iceberg",
    "read_lance",
    "read_mcap",
    "read_orc",
    "read_tfrecords",
    "read_videos",
    "read_webdataset",
    "read_zarr",
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
    from skate.data._io.media import AudioDatasource

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
    from skate.data._io.media import VideoDatasource

    source = VideoDatasource(
        paths, include_timestamps=include_timestamps, fps=fps, resize=resize, **file_arguments(options)
    )
    return dataset_of(source, options)


@checked()
def read_mcap(
    paths: Paths,
    *,
    topics: list[str] | set[str] | None = None,
    time_range: tuple[int, int] | TimeRange | None = None,
    message_types: list[str] | set[str] | None = None,
    include_metadata: bool = True,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Return a dataset of the messages of MCAP files, in the order of their log times; needs mcap.

    Args:
        paths: Files, folders, globs, or URIs.
        topics: Read only messages of these topics.
        time_range: Read only messages logged from the first time on and before the second, in nanoseconds.
        message_types: Read only messages whose schema has one of these names.
        include_metadata: Add columns that describe the channel and the schema of a message.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.mcap import MCAPDatasource, TimeRange

    times = TimeRange(*time_range) if isinstance(time_range, tuple) else time_range
    source = MCAPDatasource(paths, topics, times, message_types, include_metadata, **file_arguments(options))
    return dataset_of(source, options)


@checked(overlap=NON_NEGATIVE)
def read_zarr(
    path: str,
    *,
    filesystem: Any = None,
    chunk_shapes: dict[str, list[int]] | list[int] | None = None,
    array_paths: list[str] | None = None,
    allow_full_metadata_scan: bool = False,
    align_axis_0: bool = False,
    overlap: int = 0,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of the chunks of the arrays of a Zarr store; needs zarr 3.

    A row has the path of its array in `array`, the number of its chunk along each axis in `chunk_index`, where the
    chunk starts and stops along each axis in `chunk_slices`, and the values in `chunk`. Arrays that share their first
    axis can be read side by side instead: a row then has a range of the axis in `t_start` and `t_stop`, and a column
    for each array.

    Args:
        path: A folder, a `.zip` file, or a URI.
        filesystem: A pyarrow or fsspec filesystem; found by the URI if not given.
        chunk_shapes: Read in chunks of these sizes along the leading axes: a list for all arrays, or a dict by path.
        array_paths: Read only these arrays.
        allow_full_metadata_scan: List the whole store for arrays if its metadata is not consolidated.
        align_axis_0: Read arrays side by side.
        overlap: Elements along the first axis that a row repeats of the next one; needs `align_axis_0`.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.zarr import ZarrDatasource

    source = ZarrDatasource(
        path,
        filesystem=filesystem,
        chunk_shapes=chunk_shapes,
        array_paths=array_paths,
        allow_full_metadata_scan=allow_full_metadata_scan,
        align_axis_0=align_axis_0,
        overlap=overlap,
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
        warn_deprecated("`filter=` on `read_lance`", "call `filter(expr=...)` on the dataset")
    source = LanceDatasource(uri, version, columns, filter, storage_options, scanner_options)
    return dataset_of(source, options)


@checked()
def read_hudi(
    table_uri: str,
    *,
    query_type: str = "snapshot",
    filters: list[tuple[str, str, str]] | None = None,
    hudi_options: dict[str, str] | None = None,
    storage_options: dict[str, str] | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Return a dataset of a Hudi table, or of its changes between two times; needs hudi.

    Args:
        table_uri: Where the table is.
        query_type: `"snapshot"`, or `"incremental"` for rows changed after
            `hoodie.read.file_group.start_timestamp` and up to `hoodie.read.file_group.end_timestamp`.
        filters: Conditions on columns, each a name, an operator and a value: `("city", "=", "Bern")`.
        hudi_options: Settings of Hudi.
        storage_options: For the store, as `hudi` wants them.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.hudi import HudiDatasource

    source = HudiDatasource(table_uri, query_type, filters, hudi_options, storage_options)
    return dataset_of(source, options)


@checked(version=NON_NEGATIVE)
def read_delta(
    path: str,
    version: int | None = None,
    *,
    catalog: Catalog | None = None,
    storage_options: dict[str, Any] | None = None,
    columns: list[str] | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Return a dataset of a Delta table, the newest version or a given one; needs deltalake.

    Args:
        path: Where the table is, or its name in the catalog.
        version: Which version; the newest, as it is now, if not given.
        catalog: Finds the table by its name.
        storage_options: For the store, as `deltalake` wants them.
        columns: Read only these.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.delta import delta_source

    arguments = file_arguments(options)
    if catalog is not None:
        found = resolve_table(catalog, path, "delta")
        path, storage_options = found.path, {**(found.storage_options or {}), **(storage_options or {})}
        arguments.setdefault("filesystem", found.filesystem)
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
    catalog: Catalog | None = None,
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
        catalog: Finds the table by its name, in place of `catalog_kwargs`.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.iceberg import IcebergDatasource

    if catalog is not None:
        table_identifier, catalog_kwargs = resolve_iceberg_table(catalog, table_identifier, catalog_kwargs)
    if row_filter is not None:
        warn_deprecated("`row_filter=` on `read_iceberg`", "call `filter(expr=...)` on the dataset")
    if tuple(selected_fields) != ("*",):
        warn_deprecated("`selected_fields=` on `read_iceberg`", "call `select_columns([...])` on the dataset")
    source = IcebergDatasource(
        table_identifier, row_filter, selected_fields, snapshot_id, scan_kwargs, catalog_kwargs
    )
    return dataset_of(source, options)


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
