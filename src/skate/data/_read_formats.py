"""Readers for formats that need an additional library or are less common."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from skate.data._arguments import NON_NEGATIVE, POSITIVE, Range, checked
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
    "read_lerobot",
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
    """Create a dataset from Arrow IPC files, IPC streams, or Feather V2 files.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.arrow_ipc import ArrowDatasource

    return dataset_of(ArrowDatasource(paths, **file_arguments(options)), options)


@checked()
def read_orc(paths: Paths, *, columns: list[str] | None = None, **options: Unpack[FileOptions]) -> Dataset:
    """Create a dataset from ORC files.

    Args:
        paths: Files, folders, globs, or URIs.
        columns: Columns to read; all by default.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.orc import ORCDatasource

    return dataset_of(ORCDatasource(paths, columns=columns, **file_arguments(options)), options)


@checked()
def read_avro(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Create a dataset from Avro files; needs fastavro.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.avro import AvroDatasource

    return dataset_of(AvroDatasource(paths, **file_arguments(options)), options)


@checked()
def read_audio(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Create a dataset from audio files, with the columns `amplitude` and `sample_rate`; needs soundfile.

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
    """Create a dataset from the frames of videos; needs av.

    Args:
        paths: Files, folders, globs, or URIs.
        include_timestamps: Add a column with the start and end of each frame.
        fps: Frames per second to read; all by default.
        resize: Height and width to resize frames to.
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
    """Create a dataset from the messages of MCAP files, in the order of their log times; needs mcap.

    Args:
        paths: Files, folders, globs, or URIs.
        topics: Read only messages of these topics.
        time_range: Read only messages logged in this range of nanoseconds, the end exclusive.
        message_types: Read only messages whose schema has one of these names.
        include_metadata: Add columns that describe the channel and schema of a message.
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
    """Create a dataset from the chunks of the arrays of a Zarr store; needs zarr 3.

    A row holds the path of its array in `array`, the index of its chunk along each axis in `chunk_index`, the start
    and stop of the chunk along each axis in `chunk_slices`, and the values in `chunk`. Arrays that share their first
    axis can be aligned instead: a row then holds a range of the axis in `t_start` and `t_stop`, and one column per
    array.

    Args:
        path: A folder, a `.zip` file, or a URI.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        chunk_shapes: Sizes of chunks along the leading axes: a list for all arrays, or a dict by path.
        array_paths: Arrays to read; all by default.
        allow_full_metadata_scan: List the whole store to find arrays if its metadata is not consolidated.
        align_axis_0: Align arrays along their first axis.
        overlap: Number of elements along the first axis that a row shares with the next one; needs `align_axis_0`.
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
    """Create a dataset from WebDataset archives, in which files with a common name form a row.

    Args:
        paths: Files, folders, globs, or URIs.
        decoder: True decodes by extensions; `"PIL"` also decodes images to Pillow images; a function maps a row to a
            row; a list applies several decoders. None keeps bytes.
        fileselect: Files of an archive to read: patterns, or a function of a name.
        filerename: New names of files: pairs of old and new patterns, or a function.
        suffixes: Columns to read: patterns, or a function of a name.
        verbose_open: Accepted as in Ray.
        expand_json: Add a column for each key of a `json` column.
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
    """Create a dataset from TFRecord files of `tf.train.Example` messages; needs protobuf and google-crc32c.

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
    """Create a dataset from a Lance table; needs pylance."""
    from skate.data._io.lance import LanceDatasource

    if filter is not None:
        warn_deprecated("`filter=` on `read_lance`", "call `filter(expr=...)` on the dataset")
    source = LanceDatasource(uri, version, columns, filter, storage_options, scanner_options)
    return dataset_of(source, options)


@checked(frame_tolerance_s=Range(0, adjective="positive", strict=True), delta_tolerance_s=Range(least=0))
def read_lerobot(
    root: Paths,
    *,
    episodes: Sequence[int] | None = None,
    read_granularity: Literal["file", "episode"] = "file",
    filesystem: Any = None,
    frame_tolerance_s: float | None = None,
    delta_timestamps: Mapping[str, Sequence[float]] | None = None,
    delta_tolerance_s: float = 1e-4,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[TaskOptions],
) -> Dataset:
    """Create a dataset from the frames of LeRobot datasets; needs av for videos, and pillow for images.

    A row holds the columns of the Parquet files, a decoded RGB frame of each camera, the description of its `task`,
    the number of its dataset in `dataset_index`, and the `stats` of all features as JSON. Versions 3 and 2 of the
    format are supported.

    Args:
        root: Folder of a dataset, or a list of them, which must have the same features.
        episodes: Read only episodes with these numbers; their files are the only ones that are opened.
        read_granularity: `"file"` reads the episodes of a file in one task, `"episode"` each on its own.
            `override_num_blocks` merges or splits these tasks.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        frame_tolerance_s: The longest time between a row and its frame of a video, in seconds; half a frame by default.
        delta_timestamps: Offsets in seconds by feature. The column then holds a window of values, one per offset, and
            the column `<feature>_is_pad` whether an offset is outside of the episode: the window then repeats the
            first or last value.
        delta_tolerance_s: The greatest deviation of an offset from a multiple of the time of a frame, in seconds.
        storage_options: Options of an fsspec filesystem for the URI; without effect if `filesystem` is given.
        **options: Those of `TaskOptions`.
    """
    from skate.data._io.lerobot import LeRobotDatasource

    source = LeRobotDatasource(
        root,
        episodes=episodes,
        read_granularity=read_granularity,
        filesystem=filesystem,
        storage_options=storage_options,
        frame_tolerance_s=frame_tolerance_s,
        delta_timestamps=delta_timestamps,
        delta_tolerance_s=delta_tolerance_s,
    )
    most = source.default_num_blocks()
    blocks = options.get("override_num_blocks")
    if blocks is None:
        options["override_num_blocks"] = most or 1  # each further task would open its files once more
    elif source.has_windows and blocks > most:
        raise ValueError(
            f"override_num_blocks is {blocks}, but there are {most} row ranges, which delta_timestamps does not allow "
            "to split: pass at most that many"
        )
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
    """Create a dataset from a Hudi table, or from its changes between two timestamps; needs hudi.

    Args:
        table_uri: Location of the table.
        query_type: `"snapshot"`, or `"incremental"` for rows changed after
            `hoodie.read.file_group.start_timestamp` and up to `hoodie.read.file_group.end_timestamp`.
        filters: Conditions on columns, as (name, operator, value): `("city", "=", "Bern")`.
        hudi_options: Options of Hudi.
        storage_options: Storage options of `hudi`.
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
    """Create a dataset from the latest or a given version of a Delta table; needs deltalake.

    Args:
        path: Location of the table, or its name in the catalog.
        version: The version to read; by default the latest at the time of the call.
        catalog: Catalog to look up the table in.
        storage_options: Storage options of `deltalake`.
        columns: Columns to read; all by default.
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
    """Create a dataset from an Iceberg table; needs pyiceberg.

    Files that cannot match the filters of the dataset, and unused columns, are not read.

    Args:
        table_identifier: Name of the table in the catalog: `"db.table"`.
        row_filter: An expression of `pyiceberg`, or its text. Deprecated in Ray in favor of `filter`.
        selected_fields: Columns to read. Deprecated in Ray in favor of `select_columns`.
        snapshot_id: The snapshot to read; by default the latest at the time of the call.
        scan_kwargs: Further options for `Table.scan` of `pyiceberg`.
        catalog_kwargs: Arguments for `pyiceberg.catalog.load_catalog`; `name` is the name of the catalog.
        catalog: Catalog to look up the table in, instead of `catalog_kwargs`.
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
    """Create a dataset from a Hugging Face Dataset, whose Arrow files are not copied, or an IterableDataset.

    Args:
        dataset: One split: `load_dataset(...)["train"]`.
        parallelism: An older name of `override_num_blocks`.
        concurrency: Maximum number of concurrent tasks.
        override_num_blocks: Number of parts to read; chosen by size by default.
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
    """Create a dataset from a torch dataset, as a column `item`; several tasks read a map-style dataset."""
    from skate.data._io.torch_datasets import TorchDatasource

    return dataset_of(TorchDatasource(dataset, local_read=local_read), {})
