"""Datasources for text files, with a row per line, and for whole files, with a row per file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from skate.data._io import paths, streams
from skate.data.datasource.file_based_datasource import FileBasedDatasource

_PIECE_BYTES = 8 << 20
# Encodings in which no other character contains the byte of a newline.
_NEWLINE_IS_ONE_BYTE = {"utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252"}
_MAX_BINARY_BYTES = (1 << 31) - 1


class TextDatasource(FileBasedDatasource):
    """Read the lines of text files into the column `text`.

    Args:
        paths: Files, folders, globs or URIs.
        encoding: Encoding of the text.
        drop_empty_lines: Skip lines that contain only whitespace.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "text"

    def __init__(
        self, paths: paths.Paths, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **file_args: Any
    ) -> None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(
                f"encoding {encoding!r} is unknown to Python: use for example 'utf-8' or 'latin-1'"
            ) from None
        self._encoding = encoding
        self._drop_empty_lines = drop_empty_lines
        super().__init__(paths, schema=pa.schema([("text", pa.string())]), **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        decoder = codecs.getincrementaldecoder(self._encoding)()
        rest = ""
        while True:
            data = f.read(_PIECE_BYTES)
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            if not data and rest:
                lines.append(rest)
            lines = [line.removesuffix("\r") for line in lines]
            if self._drop_empty_lines:
                lines = [line for line in lines if line and not line.isspace()]
            if lines:
                yield pa.table({"text": pa.array(lines, pa.string())})
            if not data:
                return

    def _can_divide(self, file: paths.SourceFile) -> bool:
        plain = "compression" not in self._open_args and streams.compression_of(file.path) is None
        return plain and codecs.lookup(self._encoding).name in _NEWLINE_IS_ONE_BYTE

    def schema(self) -> pa.Schema | None:
        """Return the schema; None if paths add columns."""
        return None if self._parser is not None or self._include_paths else self._schema


class BinaryDatasource(FileBasedDatasource):
    """Read the content of files into the column `bytes`; accepts the arguments of `FileBasedDatasource`."""

    _KIND: ClassVar[str] = "binary"
    _NUM_THREADS_PER_TASK: ClassVar[int] = 8

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        data = f.readall()
        yield pa.table(
            {"bytes": pa.array([data], pa.binary() if len(data) <= _MAX_BINARY_BYTES else pa.large_binary())}
        )

    def _rows_per_file(self) -> int | None:
        return 1
