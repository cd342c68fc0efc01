"""Datasource and datasink for JSON files: lines of objects, consecutive objects, or arrays of objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.json as pajson

from skate.air import _optional
from skate.data._io import json_values, paths, streams, validation
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink
from skate.data.datasource.partitioning import Partitioning, PartitionStyle

_PIECE_BYTES = 16 << 20
_COMPRESSIONS = ("gz", "br", "zst", "lz4")


class JSONDatasource(FileBasedDatasource):
    """Read JSON files in pieces, so that a file may be larger than memory.

    Python's `json` reads values that Arrow cannot, such as those of mixed types; this is slower.

    Args:
        paths: Files, folders, globs or URIs.
        lines: Each line is a value; a line that holds a list becomes a row with the columns `0`, `1`, …
        arrow_json_args: `read_options` and `parse_options` of `pyarrow.json`.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "JSON"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = [
        *("json", "jsonl"),
        *(f"{kind}.{compression}" for compression in _COMPRESSIONS for kind in ("json", "jsonl")),
    ]

    def __init__(
        self,
        paths: paths.Paths,
        *,
        lines: bool = False,
        arrow_json_args: dict[str, Any] | None = None,
        partitioning: Partitioning | None = Partitioning(PartitionStyle.HIVE),  # noqa: B008 - never changed
        **file_args: Any,
    ) -> None:
        given = dict(arrow_json_args or {})
        read_options = given.pop("read_options", None)
        self._parse_options = given.pop("parse_options", None)
        validation.check_known(given, ("read_options", "parse_options"), "read_json", ("paths",))
        self._piece_bytes = _PIECE_BYTES if read_options is None else max(read_options.block_size, 1)
        self._lines = lines
        super().__init__(paths, partitioning=partitioning, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        step = self._piece_bytes
        rest = b""
        texts: set[str] = set()  # columns that held text so far: later dates in them stay text
        while True:
            data = f.read(step)
            at_end = not data
            text = rest + data
            if not self._lines and json_values.starts_array(text):
                yield from json_values.array_blocks(f, text, step)
                return
            cut = len(text) if at_end else text.rfind(b"\n") + 1
            piece, rest = text[:cut], text[cut:]
            if piece.strip():
                block, undecoded = self._parse(piece, texts, at_end)
                rest = undecoded + rest
                if block is not None:
                    texts |= {field.name for field in block.schema if pa.types.is_string(field.type)}
                    yield block
            if at_end:
                return
            # A value is longer than the piece: read more until it ends.
            step = self._piece_bytes if piece and not rest.startswith(piece[:64]) else step * 2

    def _can_divide(self, file: paths.SourceFile) -> bool:
        # Other files may hold arrays, or objects that span several lines.
        return "compression" not in self._open_args and (
            file.path.endswith(".jsonl") or (self._lines and streams.compression_of(file.path) is None)
        )

    def _parse(self, piece: bytes, texts: set[str], at_end: bool) -> tuple[pa.Table | None, bytes]:
        """Return the rows of a piece, and its incomplete rest."""
        read_options = pajson.ReadOptions(use_threads=False, block_size=len(piece) + 1)
        try:
            block = pajson.read_json(pa.BufferReader(piece), read_options, self._options(texts))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return json_values.decode(piece, at_end)
        return block, b""

    def _options(self, texts: set[str]) -> pajson.ParseOptions | None:
        if self._parse_options is not None or not texts:
            return self._parse_options
        schema = pa.schema([(name, pa.string()) for name in sorted(texts)])
        return pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")


class JSONDatasink(BlockBasedFileDatasink):
    """Write JSON files with one object per line.

    Args:
        path: The folder.
        pandas_json_args_fn: Function that returns such options, for those that cannot be pickled.
        pandas_json_args: Options for `pandas.DataFrame.to_json`.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pandas_json_args_fn: Callable[[], dict[str, Any]] | None = None,
        pandas_json_args: dict[str, Any] | None = None,
        **file_args: Any,
    ) -> None:
        _optional.load("pandas", "write_json")
        super().__init__(path, file_format=file_args.pop("file_format", "json"), **file_args)
        self._args_fn = pandas_json_args_fn
        self._args = dict(pandas_json_args or {})

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write the rows of a block as lines."""
        args = {**self._args, **(self._args_fn() if self._args_fn is not None else {})}
        orient = args.pop("orient", "records")
        lines = args.pop("lines", orient == "records")
        frame = block.to_pandas()
        for field, column in zip(block.to_arrow().schema, block.to_arrow().columns, strict=True):
            if pa.types.is_integer(field.type) and column.null_count:
                # pandas would convert integers to floats: 1.0 for 1.
                frame[field.name] = column.to_pandas(integer_object_nulls=True)
        frame.to_json(file, orient=orient, lines=lines, **args)
