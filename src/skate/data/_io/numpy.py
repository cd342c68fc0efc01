"""Datasource and datasink for NumPy files."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from skate.data._block import batches
from skate.data._io import paths, validation
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink

_PIECE_BYTES = 16 << 20
# Magic bytes of .npy files, and of full and empty .npz archives.
_MAGIC = (np.lib.format.MAGIC_PREFIX, b"PK\x03\x04", b"PK\x05\x06")


class NumpyDatasource(FileBasedDatasource):
    """Read `.npy` files in pieces along their first axis into the column `data`.

    Args:
        paths: Files, folders, globs or URIs.
        numpy_load_args: Options for `numpy.load`. Arrays of objects need `allow_pickle=True`, which allows a file to
            run any code.
        file_args: As for `FileBasedDatasource`.
    """

    _COLUMN_NAME = "data"
    _KIND: ClassVar[str] = "NumPy"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = ["npy"]

    def __init__(
        self, paths: paths.Paths, *, numpy_load_args: dict[str, Any] | None = None, **file_args: Any
    ) -> None:
        self._load_args = {"allow_pickle": False, **(numpy_load_args or {})}
        known = inspect.signature(np.load).parameters
        validation.check_known(self._load_args, known, "read_numpy", ("paths",))
        super().__init__(paths, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        start = f.read(6)
        if start != np.lib.format.MAGIC_PREFIX:
            yield from self._read_whole(start + f.readall())
            return
        major, minor = f.read(2)
        length_bytes = f.read(2 if major == 1 else 4)
        text = f.read(int.from_bytes(length_bytes, "little"))
        header = io.BytesIO(length_bytes + text)
        reader = {1: np.lib.format.read_array_header_1_0}.get(major, np.lib.format.read_array_header_2_0)
        shape, fortran, dtype = reader(header, self._load_args.get("max_header_size", 10000))
        if dtype.hasobject or fortran or not shape:
            yield from self._read_whole(start + bytes([major, minor]) + length_bytes + text + f.readall())
            return
        row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        step = max(1, _PIECE_BYTES // max(1, row_bytes))
        for first in range(0, shape[0], step):
            rows = min(step, shape[0] - first)
            data = f.read(rows * row_bytes)
            if len(data) < rows * row_bytes:
                raise ValueError(
                    f"the file is truncated: {shape} of {dtype} misses {rows * row_bytes - len(data)} bytes"
                )
            yield self._block(np.frombuffer(data, dtype).reshape(rows, *shape[1:]))
        if shape[0] == 0:
            yield self._block(np.empty(shape, dtype))

    def _read_whole(self, data: bytes) -> Iterator[pa.Table]:
        if not data.startswith(_MAGIC) and not self._load_args["allow_pickle"]:
            raise ValueError("it is not a .npy or .npz file")
        loaded = np.load(io.BytesIO(data), **self._load_args)
        if isinstance(loaded, np.ndarray):
            if loaded.ndim == 0:
                raise ValueError("it holds a scalar, not rows: use read_binary_files")
            yield self._block(loaded)
            return
        with loaded:  # an .npz file: one column per array
            yield batches.to_block({name: loaded[name] for name in loaded.files})

    def _block(self, array: np.ndarray[Any, Any]) -> pa.Table:
        return batches.to_block({self._COLUMN_NAME: array})


class NumpyDatasink(BlockBasedFileDatasink):
    """Write one column as `.npy` files.

    Args:
        path: The folder.
        column: The column to write.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(self, path: str | os.PathLike[str], column: str, **file_args: Any) -> None:
        super().__init__(path, file_format=file_args.pop("file_format", "npy"), **file_args)
        self.column = column

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write the column of a block."""
        table = block.to_arrow()
        if self.column not in table.column_names:
            raise ValueError(f"no column {self.column!r} to write: the columns are {table.column_names}")
        array = batches.to_batch(table.select([self.column]), "numpy")[self.column]
        np.save(file, array)
