"""Methods that write files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from skate.data._arguments import checked
from skate.data._catalogs import resolve_table
from skate.data._dataset.writing_tables import TableWriteMethods
from skate.data._io import validation
from skate.data._write_options import FileOptions, file_arguments, split_options, task_arguments
from skate.data.datasource import FilenameProvider, SaveMode

if TYPE_CHECKING:
    from skate.data.catalog import Catalog


class FileWriteMethods(TableWriteMethods):
    """Methods of `Dataset` that write files."""

    @checked("mode")
    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        partition_cols: list[str] | None = None,
        filesystem: Any = None,
        catalog: Catalog | None = None,
        try_create_dir: bool = True,
        arrow_open_stream_args: dict[str, Any] | None = None,
        filename_provider: FilenameProvider | None = None,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        min_bytes_per_file: int | None = None,
        num_rows_per_file: int | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
        mode: SaveMode = SaveMode.APPEND,
        resume: bool = False,
        **arrow_parquet_args: Any,
    ) -> None:
        """Write Parquet files into a folder.

        Args:
            path: The folder: a path, or a URI such as `s3://bucket/folder`.
            partition_cols: Partition rows into folders by the values of these columns.
            filesystem: The filesystem; inferred from the path by default.
            catalog: Resolves `path` as the name of a table.
            try_create_dir: Create the folder if it is missing.
            arrow_open_stream_args: Arguments for opening files.
            filename_provider: Returns the names of files.
            arrow_parquet_args_fn: Returns further arguments of pyarrow's Parquet writer.
            min_rows_per_file: Minimum number of rows per file, except for the last.
            max_rows_per_file: Maximum number of rows per file.
            min_bytes_per_file: Minimum bytes of rows per file, except for the last.
            num_rows_per_file: An older name of `min_rows_per_file`.
            ray_remote_args: Options of the tasks.
            concurrency: Number of files that are written concurrently.
            mode: What to do if the folder has files: append, overwrite, ignore, or error.
            resume: Record the written parts in a folder `_skate` beside the files, so that the same program can resume
                after a kill. Each row is written once, and repeating a finished write does nothing.
            **arrow_parquet_args: Further arguments of pyarrow's Parquet writer.

        Raises:
            ResumeError: The write is not resumable, or another program writes to the folder.
        """
        from skate.data._io.parquet_sink import ParquetDatasink

        if catalog is not None:
            found = resolve_table(catalog, path, "parquet", "write")
            path, filesystem = found.path, filesystem or found.filesystem
        files: FileOptions = {
            "filesystem": filesystem,
            "try_create_dir": try_create_dir,
            "arrow_open_stream_args": arrow_open_stream_args,
            "filename_provider": filename_provider,
            "min_rows_per_file": min_rows_per_file,
            "num_rows_per_file": num_rows_per_file,
            "mode": mode,
        }
        validation.check_spelling(
            arrow_parquet_args, (*files, "max_rows_per_file", "partition_cols"), "this writer"
        )
        sink = ParquetDatasink(
            path,
            partition_cols=partition_cols,
            arrow_parquet_args_fn=arrow_parquet_args_fn,
            arrow_parquet_args=arrow_parquet_args,
            max_rows_per_file=max_rows_per_file,
            min_bytes_per_file=min_bytes_per_file,
            **file_arguments(files),
        )
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency, resume=resume)

    @checked()
    def write_csv(
        self,
        path: str | os.PathLike[str],
        *,
        arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Write CSV files into a folder.

        Args:
            path: The folder: a path or a URI.
            arrow_csv_args_fn: Returns further arguments of pyarrow's CSV writer.
            **options: Options of `FileOptions`, as in `write_parquet`, and arguments of pyarrow's CSV writer.
        """
        from skate.data._io.csv import CSVDatasink

        given, own = split_options(options)
        files = file_arguments(given)
        sink = CSVDatasink(path, arrow_csv_args_fn=arrow_csv_args_fn, arrow_csv_args=own, **files)
        self.write_datasink(sink, **task_arguments(given))

    @checked()
    def write_json(
        self,
        path: str | os.PathLike[str],
        *,
        pandas_json_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Write JSON files into a folder, one row per line.

        Args:
            path: The folder: a path or a URI.
            pandas_json_args_fn: Returns further arguments of pandas's JSON writer.
            **options: Options of `FileOptions`, as in `write_parquet`, and arguments of pandas's JSON writer.
        """
        from skate.data._io.json import JSONDatasink

        given, own = split_options(options)
        files = file_arguments(given)
        sink = JSONDatasink(path, pandas_json_args_fn=pandas_json_args_fn, pandas_json_args=own, **files)
        self.write_datasink(sink, **task_arguments(given))

    @checked()
    def write_orc(
        self,
        path: str | os.PathLike[str],
        *,
        arrow_orc_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Write ORC files into a folder.

        Args:
            path: The folder: a path or a URI.
            arrow_orc_args_fn: Returns further arguments of pyarrow's ORC writer.
            **options: Options of `FileOptions`, as in `write_parquet`, and arguments of pyarrow's ORC writer.
        """
        from skate.data._io.orc import ORCDatasink

        given, own = split_options(options)
        files = file_arguments(given)
        sink = ORCDatasink(path, arrow_orc_args_fn=arrow_orc_args_fn, arrow_orc_args=own, **files)
        self.write_datasink(sink, **task_arguments(given))

    @checked()
    def write_numpy(
        self, path: str | os.PathLike[str], *, column: str, **options: Unpack[FileOptions]
    ) -> None:
        """Write a column to `.npy` files in a folder.

        Args:
            path: The folder: a path or a URI.
            column: The column.
            **options: Options of `FileOptions`, as in `write_parquet`.
        """
        from skate.data._io.numpy import NumpyDatasink

        sink = NumpyDatasink(path, column, **file_arguments(options))
        self.write_datasink(sink, **task_arguments(options))

    @checked()
    def write_images(
        self,
        path: str | os.PathLike[str],
        column: str,
        file_format: str = "png",
        **options: Unpack[FileOptions],
    ) -> None:
        """Write a column of images to a folder, one file per row.

        Args:
            path: The folder: a path or a URI.
            column: The column.
            file_format: The format of the files: "png", "jpeg", …
            **options: Options of `FileOptions`, as in `write_parquet`.
        """
        from skate.data._io.media import ImageDatasink

        sink = ImageDatasink(path, column, file_format=file_format, **file_arguments(options))
        self.write_datasink(sink, **task_arguments(options))

    @checked()
    def write_tfrecords(
        self, path: str | os.PathLike[str], *, tf_schema: Any = None, **options: Unpack[FileOptions]
    ) -> None:
        """Write TFRecord files into a folder.

        Args:
            path: The folder: a path or a URI.
            tf_schema: The feature type of each column, as a `tensorflow_metadata` schema.
            **options: Options of `FileOptions`, as in `write_parquet`.
        """
        from skate.data._io.tfrecords import TFRecordDatasink

        sink = TFRecordDatasink(path, tf_schema=tf_schema, **file_arguments(options))
        self.write_datasink(sink, **task_arguments(options))

    @checked()
    def write_webdataset(
        self, path: str | os.PathLike[str], *, encoder: Any = True, **options: Unpack[FileOptions]
    ) -> None:
        """Write WebDataset archives into a folder.

        Args:
            path: The folder: a path or a URI.
            encoder: The encoding of values to files of an archive: by column name, or a function.
            **options: Options of `FileOptions`, as in `write_parquet`.
        """
        from skate.data._io.webdataset import WebDatasetDatasink

        sink = WebDatasetDatasink(path, encoder=encoder, **file_arguments(options))
        self.write_datasink(sink, **task_arguments(options))
