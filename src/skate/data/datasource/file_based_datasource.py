"""Base class of datasources for files: it lists and opens files and adds their paths to errors."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.data._arguments import check_protocol, check_type
from skate.data._block import batches
from skate.data._io import (
    balancing,
    errors,
    line_ranges,
    path_columns,
    paths,
    pickled_columns,
    retrying,
    streams,
)
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource.datasource import Datasource, ReadTask
from skate.data.datasource.partitioning import Partitioning, PathPartitionFilter, PathPartitionParser


@dataclass
class FileShuffleConfig:
    """Shuffle the order in which files are read.

    Args:
        seed: Seed of the order, which makes it reproducible.
        reseed_after_execution: Derive a different order from the seed for each execution of the dataset.

    >>> FileShuffleConfig(seed=7).get_seed(execution_idx=2)
    9
    """

    seed: int | None = None
    reseed_after_execution: bool = True

    def __post_init__(self) -> None:
        if self.seed is not None and not isinstance(self.seed, int):
            raise ValueError(f"seed is {self.seed!r}: pass an int, or None for a different order each time")

    def get_seed(self, execution_idx: int = 0) -> int | None:
        """Return the seed for the n-th execution."""
        if self.seed is None or not self.reseed_after_execution:
            return self.seed
        return self.seed + execution_idx


Shuffle = Literal["files"] | FileShuffleConfig | None


class FileBasedDatasource(Datasource):
    """Base class of datasources for custom file formats; only `_read_stream` is required.

    Args:
        paths: Files, folders, globs or URIs.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        schema: Schema of the blocks, if known.
        open_stream_args: `compression` and `buffer_size` for opening files.
        meta_provider: Provider that lists the files instead of the filesystem: see `BaseFileMetadataProvider`.
        partition_filter: Filter of files by the partition values in their paths.
        partitioning: Partitioning whose values become columns.
        ignore_missing_paths: Skip paths that do not exist, instead of raising an error.
        shuffle: `"files"`, or a `FileShuffleConfig`, to read the files in random order.
        include_paths: Add the column `path`.
        file_extensions: Read only files with one of these extensions.
    """

    _FILE_EXTENSIONS: ClassVar[list[str] | None] = None
    # Number of remote files to open in parallel, for formats with one row per file.
    _NUM_THREADS_PER_TASK: ClassVar[int] = 0
    # Ratio of the size of blocks to the size of files.
    _ENCODING_RATIO: ClassVar[float] = 1.0
    # Name of the format in errors.
    _KIND: ClassVar[str] = ""

    def __init__(
        self,
        paths: paths.Paths,
        *,
        filesystem: Any = None,
        schema: pa.Schema | None = None,
        open_stream_args: dict[str, Any] | None = None,
        meta_provider: Any = None,
        partition_filter: PathPartitionFilter | None = None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
        shuffle: Shuffle = None,
        include_paths: bool = False,
        file_extensions: list[str] | None = None,
        skip_paths: paths.Paths | None = None,
    ) -> None:
        if shuffle is not None and shuffle != "files" and not isinstance(shuffle, FileShuffleConfig):
            raise ValueError(f"shuffle is {shuffle!r}: use None, 'files' or a FileShuffleConfig")
        self._schema = schema
        self._open_args = open_stream_args or {}
        if partitioning is not None:
            check_type(
                "partitioning", partitioning, Partitioning, "a Partitioning such as Partitioning('hive')"
            )
        if partition_filter is not None:
            check_protocol("partition_filter", partition_filter, "apply", "a PathPartitionFilter")
        self._parser = None if partitioning is None else PathPartitionParser(partitioning)
        self._shuffle = shuffle
        self._include_paths = include_paths
        given = _as_list(paths)
        self._distributed = not any(path.startswith("local:") for path in given)
        self._filesystem, resolved = _resolve_all(given, filesystem)
        extensions = file_extensions if file_extensions is not None else self._FILE_EXTENSIONS
        keep = None if partition_filter is None else partition_filter.apply
        skip = _resolve_all(skip_paths, filesystem or self._filesystem)[1] if skip_paths else ()
        if meta_provider is not None:
            listed = meta_provider.expand_paths(
                resolved, self._filesystem, partitioning, ignore_missing_paths
            )
            self._files = _chosen([_SourceFile(path, size) for path, size in listed], extensions, keep, skip)
        else:
            self._files = _expand(
                resolved,
                self._filesystem,
                extensions=extensions,
                ignore_missing=ignore_missing_paths,
                keep=keep,
                skip=skip,
            )
        self._target: int | None = balancing.DEFAULT_BLOCK_BYTES
        # The program that creates the dataset decides, not the environment of the worker.
        self._trusted = pickled_columns.may_unpickle(pickled_columns.RAY_ALLOW_PICKLED)

    # ------------------------------------------------------------ overridable methods

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Any]:
        """Yield the blocks of one open file.

        Args:
            f: The file, decompressed.
            path: Path of the file.
        """
        raise NotImplementedError(f"{type(self).__name__} must define _read_stream(f, path)")

    def _open_input_source(self, filesystem: pafs.FileSystem, path: str, **open_args: Any) -> pa.NativeFile:
        """Open a file; formats that need random access override this with `open_input_file`."""
        return streams.open_stream(filesystem, path, **open_args)

    def _rows_per_file(self) -> int | None:
        """Return the number of rows per file, if the format defines it."""
        return None

    def _can_divide(self, file: paths.SourceFile) -> bool:
        """Return whether a file consists of lines and can be read from the start of any of them."""
        return False

    # ------------------------------------------------------------ datasource interface

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether any worker can read; `local://` paths are read in the driver process."""
        return self._distributed

    def schema(self) -> pa.Schema | None:
        """Return the schema that was passed, if any."""
        return self._schema

    def num_rows(self) -> int | None:
        """Return the number of rows, if the format defines the number per file."""
        rows = self._rows_per_file()
        return None if rows is None else rows * len(self._files)

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the size of the files in memory, in bytes; None if their sizes are unknown."""
        sizes = [file.size for file in self._files]
        if any(size is None for size in sizes):
            return None
        return int(sum(size for size in sizes if size is not None) * self._ENCODING_RATIO)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the files into consecutive groups of about the same size."""
        files = line_ranges.split_files(self._order_files(data_context), parallelism, self._can_divide)
        if not files:
            return []
        reader = self._replace(_target=(data_context or DataContext.get_current()).target_max_block_size)
        sizes = [file.read_bytes for file in files]
        tasks = []
        for group in balancing.balance(files, sizes, parallelism):
            part = reader._replace(_files=group)
            known = [file.read_bytes for file in group if file.size is not None]
            metadata = BlockMetadata(
                num_rows=part.num_rows(),
                size_bytes=int(sum(known) * self._ENCODING_RATIO) if len(known) == len(group) else None,
                input_files=list(dict.fromkeys(file.path for file in group)),
                exec_stats=None,
            )
            tasks.append(
                ReadTask(part._read, metadata, self._schema, per_task_row_limit, identity=identity_of(group))
            )
        return tasks

    def _order_files(self, data_context: Any) -> list[paths.SourceFile]:
        files = list(self._files)
        if self._shuffle is not None:
            config = self._shuffle if isinstance(self._shuffle, FileShuffleConfig) else FileShuffleConfig()
            seed = config.get_seed(getattr(data_context, "_execution_idx", 0))
            if seed is None:
                seed = getattr(data_context, "_chance", None)
            random.Random(seed).shuffle(files)
        return files

    # ------------------------------------------------------------ reading, in a worker

    def _read(self) -> Iterator[pa.Table]:
        return balancing.merge_small(self._blocks(), self._target)

    def _blocks(self) -> Iterator[pa.Table]:
        if self._NUM_THREADS_PER_TASK <= 1 or len(self._files) == 1 or filesystems.is_local(self._filesystem):
            for file in self._files:
                yield from self._blocks_of(file)
            return
        with ThreadPoolExecutor(self._NUM_THREADS_PER_TASK) as pool:
            running: deque[Future[list[pa.Table]]] = deque()
            try:
                for file in self._files:
                    running.append(pool.submit(self._all_blocks_of, file))
                    if len(running) > self._NUM_THREADS_PER_TASK:
                        yield from running.popleft().result()
                while running:
                    yield from running.popleft().result()
            finally:
                for waiting in running:
                    waiting.cancel()

    def _all_blocks_of(self, file: paths.SourceFile) -> list[pa.Table]:
        return list(self._blocks_of(file))

    def _blocks_of(self, file: paths.SourceFile) -> Iterator[pa.Table]:
        kind = self._KIND or self.get_name()
        try:
            values = {} if self._parser is None else self._parser(file.path)
            for block in retrying.iterate(lambda: self._stream(file), f"reading {file.path}"):
                if values:
                    block = path_columns.add_partition_columns(block, values, self._parser)
                yield path_columns.add_path_column(block, file.path) if self._include_paths else block
        except Exception as error:
            made = errors.with_path(error, kind, file.path)
            if made is error:
                raise
            raise made from error

    def _stream(self, file: paths.SourceFile) -> Iterator[pa.Table]:
        with self._open(file) as opened:
            for found in self._read_stream(opened, file.path):
                block = found if isinstance(found, pa.Table) else batches.to_block(found)
                _ = block.column_names  # raises for names that are not UTF-8, while the file is known
                yield pickled_columns.restore_objects(block, self._trusted)

    def _open(self, file: paths.SourceFile) -> pa.NativeFile:
        if file.stop is not None:
            return line_ranges.open_range(self._filesystem, file)
        return self._open_input_source(self._filesystem, file.path, **self._open_args)


def identity_of(files: list[paths.SourceFile], inside: str = "") -> str | None:
    """Return an identifier of the content of files; None if the filesystem cannot distinguish versions of a file.

    Args:
        files: The files.
        inside: The selected part of the files, if not all.
    """
    if any(file.size is None and file.changed is None for file in files):
        return None
    whole = "\n".join(file.identity for file in files) + inside
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


# The argument `paths`, a name of Ray's, hides the module.
_as_list = paths.as_list
_resolve_all = paths.resolve_all
_expand = paths.expand
_chosen = paths.filter_files
_SourceFile = paths.SourceFile
