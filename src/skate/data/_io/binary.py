"""Whole files as a source: a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from skate.data.datasource.file_based_datasource import FileBasedDatasource

_MOST_BYTES = (1 << 31) - 1


class BinaryDatasource(FileBasedDatasource):
    """Read the bytes of files, as the column `bytes`; takes the arguments of `FileBasedDatasource`."""

    _KIND: ClassVar[str] = "binary"
    _NUM_THREADS_PER_TASK: ClassVar[int] = 8

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        data = f.readall()
        yield pa.table(
            {"bytes": pa.array([data], pa.binary() if len(data) <= _MOST_BYTES else pa.large_binary())}
        )

    def _rows_per_file(self) -> int | None:
        return 1
