"""Folders of files as a sink: one class that names files and makes them appear whole, to derive writers from."""

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


class WaitingFile(str):
    """The path that a file is going to have, with the one that it has until then."""

    waiting: str

    def __new__(cls, path: str, waiting: str) -> WaitingFile:
        """Note where the file is."""
        made = super().__new__(cls, path)
        made.waiting = waiting
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return WaitingFile, (str(self), self.waiting)


class _FileDatasink(Datasink[list[str]]):
    """Write files into a folder; every call of `write` returns the paths that it wrote.

    A file is written under a hidden name and renamed at its end, so that nobody sees half of it; on an object store,
    where a file appears when its upload ends, it gets its name at once and is removed if writing it fails. With
    `mode="overwrite"` the files that were there are removed when the new ones are complete, not before.

    In a write that can be resumed, files wait in a folder of their own until whoever has asked for it moves them.
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
        self.mode = _checked(mode)
        self._skips = False
        self._waiting_room: str | None = None
        self._part: str | None = None
        self._written: list[str] = []
        self._replaced: list[str] = []
        # When a write has a name of its own, in case the plan gives it none.
        self._write_uuid = uuid.uuid4().hex

    # ------------------------------------------------------------ in the driver

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Look at the target, before anything is written.

        Raises:
            ValueError: It exists, and the mode is `"error"`.
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
        """Remove what the new files replace."""
        written = {path for paths in write_result.write_returns for path in paths or ()}
        for path in self._replaced:
            if path not in written:
                retrying.call(lambda path=path: self._remove(path), f"removing {path}")  # type: ignore[misc]  # a lambda with a default
        self._replaced = []

    # ------------------------------------------------------------ in a worker

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> list[str]:
        """Write one part, and return the paths of its files."""
        if self._skips:
            return []
        block = tables.concat(list(blocks) or [pa.table({})])
        if block.num_rows == 0:
            return []
        if self.try_create_dir:
            self._create_folder(self.path)
        mine = copy.copy(self)  # several threads may write at a time
        mine._written = []
        if self._waiting_room is not None:
            ctx = mine._enter_waiting_room(self._waiting_room, ctx)
        mine.write_block(BlockAccessor.for_block(block), 0, ctx)
        return mine._written

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write one block; what derives from this says how."""
        raise NotImplementedError(f"{type(self).__name__} has to define write_block(block, block_index, ctx)")

    def open_output_stream(self, path: str) -> pa.NativeFile:
        """Open a file for writing."""
        return self._filesystem.open_output_stream(path, **self.open_stream_args)

    def _write_file(self, name: str, fill: Callable[[pa.NativeFile], None], folder: str = "") -> None:
        """Make a file appear whole, or not at all.

        Args:
            name: What it is called.
            fill: Writes it, once it is open.
            folder: Where it goes, inside the folder of the sink.
        """
        path = posixpath.join(self.path, folder, name)
        if filesystems.commits_on_close(self._filesystem):
            self._check_that_it_names_its_part(name)
            retrying.call(lambda: self._fill(path, fill), f"writing {path}")
        elif self._waiting_room is not None:
            waiting = posixpath.join(self._waiting_room, folder)
            self._create_folder(waiting)
            hidden = posixpath.join(waiting, name)
            retrying.call(lambda: self._fill(hidden, fill), f"writing {path}")
            streams.fsync(self._filesystem, hidden)
            path = WaitingFile(path, hidden)
        else:
            if folder:
                self._create_folder(posixpath.join(self.path, folder))
            # The same hidden name at every attempt: what a killed attempt left is replaced by the next.
            hidden = posixpath.join(self.path, folder, f".{name}.partial")
            retrying.call(lambda: self._fill(hidden, fill), f"writing {path}")
            retrying.call(lambda: self._filesystem.move(hidden, path), f"writing {path}")
        self._written.append(path)

    # ------------------------------------------------------------ in a write that can be resumed

    @property
    def supports_resume(self) -> bool:
        """Whether a write can be resumed: as long as nobody has put something else in place of `write`."""
        return type(self).write is _FileDatasink.write

    def keep_in(self, waiting_room: str) -> None:
        """Let files wait in a folder instead of appearing, where the filesystem can move them later."""
        self._waiting_room = waiting_room

    def _enter_waiting_room(self, waiting_room: str, ctx: TaskContext) -> TaskContext:
        """Choose a place for the files of this attempt.

        A worker may die after it has reported its files. Then the task is done again while somebody moves them: what is
        written now must not touch what was written then.
        """
        attempt = uuid.uuid4().hex[:8]
        self._waiting_room = posixpath.join(waiting_room, attempt)
        if filesystems.commits_on_close(self._filesystem):
            ctx = replace(ctx, part=f"{ctx.part}_{attempt}")
        self._part = ctx.part
        return ctx

    def _check_that_it_names_its_part(self, name: str) -> None:
        # An object appears at once: what a killed program has left is found by its name.
        if self._waiting_room is not None and self._part is not None and self._part not in name:
            raise ResumeError(
                f"the file name {name!r} does not hold {self._part!r}, and without it nobody could tell what a killed "
                f"job has left in {self.unresolved_path}: let the filename_provider put write_uuid into the name"
            )

    def _fill(self, path: str, fill: Callable[[pa.NativeFile], None]) -> None:
        try:
            with self.open_output_stream(path) as file:
                fill(file)
        except BaseException:
            self._remove(path)  # closing a stream completes it, however short it is
            raise

    def _remove(self, path: str) -> None:
        try:
            self._filesystem.delete_file(path)
        except FileNotFoundError:
            pass  # it never appeared, or somebody else was faster

    def _create_folder(self, path: str) -> None:
        # A store of objects has no folders, and a missing bucket should be an error, not a new bucket.
        if not filesystems.commits_on_close(self._filesystem):
            self._filesystem.create_dir(path, recursive=True)

    def _naming(self, ctx: TaskContext) -> tuple[str, int]:
        """Return what names the write, and the number of the task, for the provider of names."""
        if ctx.part is not None:
            named = ctx.part if _SAFE_NAME.fullmatch(ctx.part) else _digest(ctx.part)
            # The number of the task may differ when the part is written again.
            return named, _NO_NUMBER if self._names_are_ours else ctx.task_idx
        return str(ctx.kwargs.get("write_uuid") or self._write_uuid), ctx.task_idx


class _PartNames(FilenameProvider):
    """Names files after their part alone, where it has a name: that is unique already."""

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        if task_index != _NO_NUMBER:
            return super().get_filename_for_task(write_uuid, task_index)
        stem = f"{self._dataset_uuid}_{write_uuid}" if self._dataset_uuid else write_uuid
        return f"{stem}.{self._file_format}" if self._file_format else stem


class RowBasedFileDatasink(_FileDatasink):
    """Derive from this to write a file for each row: `write_row_to_file` is all that is needed.

    Args:
        path: The folder.
        filesystem: A pyarrow or fsspec filesystem; found by the URI if not given.
        try_create_dir: Make the folder if it is not there.
        open_stream_args: For opening files.
        filename_provider: Names the files.
        file_format: The extension of the files.
        mode: What to do when the folder exists.
    """

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        """Write one row into its open file."""
        raise NotImplementedError(f"{type(self).__name__} has to define write_row_to_file(row, file)")

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write a file for each row of a block."""
        write_uuid, task_index = self._naming(ctx)
        for row_index, row in enumerate(rows.to_rows(block.to_arrow())):
            name = self.filename_provider.get_filename_for_row(
                row, write_uuid, task_index, block_index, row_index
            )
            self._write_file(name, lambda file, row=row: self.write_row_to_file(row, file))  # type: ignore[misc]  # a lambda with a default


class BlockBasedFileDatasink(_FileDatasink):
    """Derive from this to write a file for each block: `write_block_to_file` is all that is needed.

    Args:
        path: The folder.
        min_rows_per_file: Put at least so many rows into each file.
        file_datasink_kwargs: As for `RowBasedFileDatasink`.
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
        """How many rows each call of `write` should get at least."""
        return self._min_rows_per_file

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a block into its open file."""
        raise NotImplementedError(f"{type(self).__name__} has to define write_block_to_file(block, file)")

    def write_block(self, block: BlockAccessor, block_index: int, ctx: TaskContext) -> None:
        """Write a block as one file."""
        write_uuid, task_index = self._naming(ctx)
        name = self.filename_provider.get_filename_for_block(
            block.to_arrow(), write_uuid, task_index, block_index
        )
        self._write_file(name, lambda file: self.write_block_to_file(block, file))


def _checked(mode: SaveMode | str) -> SaveMode:
    try:
        found = SaveMode(mode)
    except ValueError:
        found = SaveMode.UPSERT
    if found not in _FILE_MODES:
        raise ValueError(
            f"mode is {mode!r}: files can be written with {', '.join(map(repr, map(str, _FILE_MODES)))}"
        )
    return found


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
