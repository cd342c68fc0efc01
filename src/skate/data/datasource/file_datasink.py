"""Base classes of datasinks for folders of files: they name files and make them appear atomically."""

from __future__ import annotations

import copy
import hashlib
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.data._block import rows, tables
from skate.data._io import retrying, streams
from skate.data.block import Block, BlockAccessor
from skate.data.datasource.datasink import Datasink, TaskContext, WriteResult
from skate.data.datasource.filename_provider import FilenameProvider
from skate.data.datasource.savemode import SaveMode
from skate.data.exceptions import ResumeError

_FILE_MODES = (SaveMode.APPEND, SaveMode.OVERWRITE, SaveMode.IGNORE, SaveMode.ERROR)
_NO_NUMBER = -1
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class StagedFile(str):
    """The final path of a file, together with its current path in the staging folder."""

    waiting: str

    def __new__(cls, path: str, waiting: str) -> StagedFile:
        """Store both paths."""
        made = super().__new__(cls, path)
        made.waiting = waiting
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return StagedFile, (str(self), self.waiting)


class _FileDatasink(Datasink[list[str]]):
    """Write files into a folder; every call of `write` returns the paths of its files.

    A file is written under a hidden name and renamed when it is complete, so that readers never see a partial file. On
    an object store, where a file appears when its upload ends, it is written under its final name and removed if
    writing fails. With `mode="overwrite"`, existing files are removed once the new ones are complete.

    In a resumable write, files stay in a staging folder until the job moves them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        open_stream_args: dict[str, Any] | None = None,
        filename_provider: FilenameProvider | None = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: SaveMode = SaveMode.APPEND,
    ) -> None:
        self.unresolved_path = os.fspath(path)
        self._filesystem, self.path = filesystems.resolve(self.unresolved_path, filesystem)
        self.filesystem = self._filesystem
        self.try_create_dir = try_create_dir
        self.open_stream_args = open_stream_args or {}
        self.file_format = file_format
        self.dataset_uuid = dataset_uuid
        self._names_are_ours = filename_provider is None
        self.filename_provider = filename_provider or _PartNames(dataset_uuid, file_format)
        self.mode = _check_mode(mode)
        self._skips = False
        self._staging_folder: str | None = None
        self._part: str | None = None
        self._written: list[str] = []
        self._replaced: list[str] = []
        # The identifier of the write, in case the plan provides none.
        self._write_uuid = uuid.uuid4().hex

    # ------------------------------------------------------------ in the driver

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Check the target and create the folder.

        Raises:
            ValueError: The target exists, and the mode is `"error"`.
        """
        if self.mode == SaveMode.APPEND:
            return
        info = retrying.call(lambda: self._filesystem.get_file_info(self.path), f"looking up {self.path}")
        if info.type == pafs.FileType.NotFound:
            return
        if self.mode == SaveMode.ERROR:
            raise ValueError(
                f"Path {self.path} already exists. Write to another path, or pass mode='append', "
                f"'overwrite' or 'ignore'"
            )
        if self.mode == SaveMode.IGNORE:
            self._skips = True
        elif info.type == pafs.FileType.Directory:
            selector = pafs.FileSelector(self.path, recursive=True)
            found = self._filesystem.get_file_info(selector)
            self._replaced = [other.path for other in found if other.type == pafs.FileType.File]
        else:
            raise ValueError(
                f"{self.path} is a file: writing needs a folder. Remove it, or write to another path"
            )

    def on_write_complete(self, write_result: WriteResult[list[str]]) -> None:
        """Remove the files that the new ones replace."""
        written = {path for paths in write_result.write_returns for path in paths or ()}
        for path in self._replaced:
            if path not in written:
                retrying.call(lambda path=path: self._remove(path), f"removing {path}")  # type: ignore[misc]  # a lambda with a default
        self._replaced = []

    # ------------------------------------------------------------ in a worker

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> list[str]:
        """Write the blocks of one task and return the paths of the files."""
        if self._skips:
            return []
        block = tables.concat(list(blocks) or [pa.table({})])
        if block.num_rows == 0:
            return []
        if self.try_create_dir:
            self._create_folder(self.path)
        mine = copy.copy(self)  # several threads may write at a time
        mine._written = []
        if self._staging_folder is not None:
            ctx = mine._use_staging_folder(self._staging_folder, ctx)
        mine.write_block(BlockAccessor.for_block(block), 0, ctx)
        return mine._written

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write one block; subclasses implement this."""
        raise NotImplementedError(f"{type(self).__name__} must define write_block(block, block_index, ctx)")

    def open_output_stream(self, path: str) -> pa.NativeFile:
        """Open a file for writing."""
        return self._filesystem.open_output_stream(path, **self.open_stream_args)

    def _write_file(self, name: str, fill: Callable[[pa.NativeFile], None], folder: str = "") -> None:
        """Write a file that appears complete or not at all.

        Args:
            name: Name of the file.
            fill: Function that writes the content to the open file.
            folder: Folder of the file, relative to that of the datasink.
        """
        path = posixpath.join(self.path, folder, name)
        if filesystems.commits_on_close(self._filesystem):
            self._check_contains_part(name)
            retrying.call(lambda: self._fill(path, fill), f"writing {path}")
        elif self._staging_folder is not None:
            waiting = posixpath.join(self._staging_folder, folder)
            self._create_folder(waiting)
            hidden = posixpath.join(waiting, name)
            retrying.call(lambda: self._fill(hidden, fill), f"writing {path}")
            streams.fsync(self._filesystem, hidden)
            path = StagedFile(path, hidden)
        else:
            if folder:
                self._create_folder(posixpath.join(self.path, folder))
            # Every attempt uses the same hidden name, so that a retry replaces the remains of a killed attempt.
            hidden = posixpath.join(self.path, folder, f".{name}.partial")
            retrying.call(lambda: self._fill(hidden, fill), f"writing {path}")
            retrying.call(lambda: self._filesystem.move(hidden, path), f"writing {path}")
        self._written.append(path)

    # ------------------------------------------------------------ resumable writes

    @property
    def supports_resume(self) -> bool:
        """Whether a write is resumable: not if a subclass overrides `write`."""
        return type(self).write is _FileDatasink.write

    def stage_in(self, staging_folder: str) -> None:
        """Stage files in a folder, if the filesystem can move them later."""
        self._staging_folder = staging_folder

    def _use_staging_folder(self, staging_folder: str, ctx: TaskContext) -> TaskContext:
        """Choose a staging folder for the files of this attempt.

        A worker may die after it has reported its files. The retry of its task then runs while the job moves those
        files, so the two attempts must not share paths.
        """
        attempt = uuid.uuid4().hex[:8]
        self._staging_folder = posixpath.join(staging_folder, attempt)
        if filesystems.commits_on_close(self._filesystem):
            ctx = replace(ctx, part=f"{ctx.part}_{attempt}")
        self._part = ctx.part
        return ctx

    def _check_contains_part(self, name: str) -> None:
        # On an object store files appear at once, so the remains of a killed job are identified by their names.
        if self._staging_folder is not None and self._part is not None and self._part not in name:
            raise ResumeError(
                f"the file name {name!r} does not contain {self._part!r}, which identifies the remains of a killed "
                f"job in {self.unresolved_path}: make the filename_provider include write_uuid in the name"
            )

    def _fill(self, path: str, fill: Callable[[pa.NativeFile], None]) -> None:
        try:
            with self.open_output_stream(path) as file:
                fill(file)
        except BaseException:
            self._remove(path)  # closing a stream completes the file, even if it is partial
            raise

    def _remove(self, path: str) -> None:
        try:
            self._filesystem.delete_file(path)
        except FileNotFoundError:
            pass  # it never appeared, or another process removed it

    def _create_folder(self, path: str) -> None:
        # Object stores have no folders, and a missing bucket is an error rather than a reason to create it.
        if not filesystems.commits_on_close(self._filesystem):
            self._filesystem.create_dir(path, recursive=True)

    def _name_arguments(self, ctx: TaskContext) -> tuple[str, int]:
        """Return the identifier of the write and the task index, for the filename provider."""
        if ctx.part is not None:
            named = ctx.part if _SAFE_NAME.fullmatch(ctx.part) else _digest(ctx.part)
            # The task index may differ when the part is written again.
            return named, _NO_NUMBER if self._names_are_ours else ctx.task_idx
        return str(ctx.kwargs.get("write_uuid") or self._write_uuid), ctx.task_idx


class _PartNames(FilenameProvider):
    """Name files after their part, which is already unique, if it has an identifier."""

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        if task_index != _NO_NUMBER:
            return super().get_filename_for_task(write_uuid, task_index)
        stem = f"{self._dataset_uuid}_{write_uuid}" if self._dataset_uuid else write_uuid
        return f"{stem}.{self._file_format}" if self._file_format else stem


class RowBasedFileDatasink(_FileDatasink):
    """Base class of datasinks that write one file per row; only `write_row_to_file` is required.

    Args:
        path: The folder.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        try_create_dir: Create the folder if it does not exist.
        open_stream_args: Options for opening files.
        filename_provider: Provider of the file names.
        file_format: Extension of the files.
        mode: How to treat an existing folder.
    """

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        """Write one row to its open file."""
        raise NotImplementedError(f"{type(self).__name__} must define write_row_to_file(row, file)")

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write one file per row of a block."""
        write_uuid, task_index = self._name_arguments(ctx)
        for row_index, row in enumerate(rows.to_rows(block.to_arrow())):
            name = self.filename_provider.get_filename_for_row(
                row, write_uuid, task_index, block_index, row_index
            )
            self._write_file(name, lambda file, row=row: self.write_row_to_file(row, file))  # type: ignore[misc]  # a lambda with a default


class BlockBasedFileDatasink(_FileDatasink):
    """Base class of datasinks that write one file per block; only `write_block_to_file` is required.

    Args:
        path: The folder.
        min_rows_per_file: Minimum number of rows per file.
        file_datasink_kwargs: Passed to `RowBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        min_rows_per_file: int | None = None,
        **file_datasink_kwargs: Any,
    ) -> None:
        super().__init__(path, **file_datasink_kwargs)
        if min_rows_per_file is not None and min_rows_per_file <= 0:
            raise ValueError(
                f"min_rows_per_file is {min_rows_per_file}: min_rows_per_file must be a positive integer"
            )
        self._min_rows_per_file = min_rows_per_file

    @property
    def min_rows_per_write(self) -> int | None:
        """The minimum number of rows per call of `write`."""
        return self._min_rows_per_file

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a block to its open file."""
        raise NotImplementedError(f"{type(self).__name__} must define write_block_to_file(block, file)")

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write a block as one file."""
        write_uuid, task_index = self._name_arguments(ctx)
        name = self.filename_provider.get_filename_for_block(
            block.to_arrow(), write_uuid, task_index, block_index
        )
        self._write_file(name, lambda file: self.write_block_to_file(block, file))


def _check_mode(mode: SaveMode | str) -> SaveMode:
    try:
        found = SaveMode(mode)
    except ValueError:
        found = SaveMode.UPSERT
    if found not in _FILE_MODES:
        raise ValueError(f"mode is {mode!r}: use one of {', '.join(map(repr, map(str, _FILE_MODES)))}")
    return found


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
