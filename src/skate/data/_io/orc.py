"""Datasource and datasink for ORC files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.orc as paorc

from skate.data._io import paths, validation
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink


class ORCDatasource(FileBasedDatasource):
    """Read ORC files, stripe by stripe.

    Args:
        paths: Files, folders, globs or URIs.
        columns: Columns to read; all by default.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "ORC"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = ["orc"]

    def __init__(self, paths: paths.Paths, *, columns: list[str] | None = None, **file_args: Any) -> None:
        self._columns = columns
        super().__init__(paths, **file_args)

    def _open_input_source(self, filesystem: pafs.FileSystem, path: str, **open_args: Any) -> pa.NativeFile:
        return filesystem.open_input_file(path)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        file = paorc.ORCFile(f)
        validation.select_fields(file.schema, self._columns)
        for stripe in range(file.nstripes):
            block = pa.Table.from_batches([file.read_stripe(stripe, columns=self._columns)])
            block.validate(full=True)  # text may be invalid UTF-8
            yield block
        if not file.nstripes:
            names = self._columns if self._columns is not None else file.schema.names
            yield pa.schema([file.schema.field(name) for name in names]).empty_table()


class ORCDatasink(BlockBasedFileDatasink):
    """Write ORC files.

    Args:
        path: The folder.
        arrow_orc_args_fn: Function that returns such options, for those that cannot be pickled.
        arrow_orc_args: Options for `pyarrow.orc.write_table`.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        arrow_orc_args_fn: Callable[[], dict[str, Any]] | None = None,
        arrow_orc_args: dict[str, Any] | None = None,
        **file_args: Any,
    ) -> None:
        super().__init__(path, file_format=file_args.pop("file_format", "orc"), **file_args)
        self._args_fn = arrow_orc_args_fn
        self._args = dict(arrow_orc_args or {})

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a block."""
        args = {**self._args, **(self._args_fn() if self._args_fn is not None else {})}
        paorc.write_table(block.to_arrow(), file, **args)
