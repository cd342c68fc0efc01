"""Datasource for Avro files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from skate.air import _optional
from skate.data._block import rows
from skate.data._io import paths
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.exceptions import FileReadError

_ROWS_AT_A_TIME = 10_000


class AvroDatasource(FileBasedDatasource):
    """Read Avro files; takes the arguments of `FileBasedDatasource`."""

    _KIND: ClassVar[str] = "Avro"

    def __init__(self, paths: paths.Paths, **file_args: Any) -> None:
        _optional.load("fastavro", "read_avro")
        super().__init__(paths, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        fastavro = _optional.load("fastavro", "read_avro")
        try:
            records = iter(fastavro.reader(f))
            while found := list(itertools.islice(records, _ROWS_AT_A_TIME)):
                yield rows.to_block_with_objects(found)
        # fastavro raises these for records with wrong lengths.
        except (ValueError, LookupError, EOFError, OverflowError, MemoryError, SystemError) as error:
            raise FileReadError("Avro", path, str(error) or type(error).__name__) from error
