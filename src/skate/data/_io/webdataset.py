"""Datasource and datasink for WebDataset: tar files in which members with a common stem form a row."""

from __future__ import annotations

import fnmatch
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from skate.data._block import rows
from skate.data._io import paths, webdataset_codecs
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink
from skate.data.exceptions import FileReadError

# The directory and the name up to the first dot form the key; the rest, including its dots, is the column.
_MEMBER = re.compile(r"^((?:.*/)?[^./]+)\.([^/]+)$")
_BYTES_PER_BLOCK = 8 << 20
_CODER = bool | str | Callable[[dict[str, Any]], dict[str, Any]]

Choice = Sequence[str] | Callable[[str], bool] | None
Renaming = Sequence[tuple[str, str]] | Callable[[str], str] | None


class WebDatasetDatasource(FileBasedDatasource):
    """Read WebDataset files.

    Args:
        paths: Files, folders, globs or URIs.
        decoder: True decodes members by their extensions; `"PIL"` also decodes images to Pillow images; a function maps
            a row to a row; a list applies several decoders. None keeps bytes.
        fileselect: Members to read: patterns, or a function of the name of a member.
        filerename: New names of members: pairs of old and new patterns, or a function.
        suffixes: Columns to read: patterns, or a function of the name of a column.
        expand_json: Add a column for each key of a `json` column.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "WebDataset"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = ["tar"]

    def __init__(
        self,
        paths: paths.Paths,
        *,
        decoder: _CODER | list[_CODER] | None = True,
        fileselect: Choice = None,
        filerename: Renaming = None,
        suffixes: Choice = None,
        verbose_open: bool = False,
        expand_json: bool = False,
        **file_args: Any,
    ) -> None:
        self._decoders = webdataset_codecs.decoders(decoder)
        self._fileselect = fileselect
        self._filerename = filerename
        self._suffixes = suffixes
        self._expand_json = expand_json
        super().__init__(paths, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        try:
            yield from self._blocks_of_samples(f, path)
        except tarfile.TarError as error:
            raise FileReadError("WebDataset", path, f"it is not a complete tar file: {error}") from error

    def _blocks_of_samples(self, file: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        found: list[dict[str, Any]] = []
        size = 0
        for sample in self._samples(file):
            size += sum(len(value) for value in sample.values())
            row: dict[str, Any] = {**sample, "__url__": path}
            for decode in self._decoders:
                row = decode(row)
            if self._expand_json:
                row = _expand_json(row)
            found.append(row)
            if size >= _BYTES_PER_BLOCK:
                yield rows.to_block_with_objects(found)
                found, size = [], 0
        if found:
            yield rows.to_block_with_objects(found)

    def _samples(self, file: pa.NativeFile) -> Iterator[dict[str, Any]]:
        current: dict[str, Any] = {}
        done: set[str] = set()
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if not member.isfile() or (member.name.startswith("__") and member.name.endswith("__")):
                    continue
                match = _MEMBER.match(self._rename(member.name))
                if match is None or not _is_selected(match.string, self._fileselect):
                    continue
                key, column = match.groups()
                column = column.lower()
                if not _is_suffix_selected(column, self._suffixes):
                    continue
                if key != current.get("__key__"):
                    if current:
                        yield current
                        done.add(current["__key__"])
                    if key in done:
                        raise ValueError(
                            f"the members of {key!r} are not contiguous: sort the archive by name, "
                            f"tar --sort=name -cf …"
                        )
                    current = {"__key__": key}
                if column in current:
                    raise ValueError(f"{member.name} occurs twice")
                content = archive.extractfile(member)
                assert content is not None  # it is a file
                current[column] = content.read()
        if current:
            yield current

    def _rename(self, name: str) -> str:
        if callable(self._filerename):
            return self._filerename(name)
        for old, new in self._filerename or ():
            name = re.sub(old, new, name)
        return name


class WebDatasetDatasink(BlockBasedFileDatasink):
    """Write WebDataset files.

    Args:
        path: The folder.
        encoder: True encodes columns by their names; a function maps a row to a row of bytes; a list applies several
            encoders. None accepts bytes and text only.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: _CODER | list[_CODER] | None = True,
        **file_args: Any,
    ) -> None:
        super().__init__(path, file_format=file_args.pop("file_format", "tar"), **file_args)
        self._encoders = webdataset_codecs.encoders(encoder)

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write the members of each row; rows without `__key__` are numbered."""
        with tarfile.open(fileobj=file, mode="w|") as archive:
            for number, row in enumerate(rows.to_rows(block.to_arrow())):
                row = {"__key__": f"{number:09}", **row}
                for encode in self._encoders:
                    row = encode(row)
                for column in sorted(row):
                    if column.startswith("__") or row[column] is None:
                        continue
                    data = row[column].encode() if isinstance(row[column], str) else row[column]
                    if not isinstance(data, bytes | bytearray | memoryview):
                        raise ValueError(
                            f"column {column!r} holds a {type(data).__name__}, which no encoder converted to bytes: "
                            f"name the column by a format, such as 'json' or 'npy', or pass an encoder"
                        )
                    member = tarfile.TarInfo(f"{row['__key__']}.{column}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def _expand_json(row: dict[str, Any]) -> dict[str, Any]:
    document = row.get("json")
    if isinstance(document, bytes):
        document = webdataset_codecs.parse_json(document)
    return {**{name: value for name, value in row.items() if name != "json"}, **document} if document else row


def _is_selected(name: str, choice: Choice) -> bool:
    if choice is None:
        return True
    return choice(name) if callable(choice) else any(fnmatch.fnmatch(name, pattern) for pattern in choice)


def _is_suffix_selected(suffix: str, choice: Choice) -> bool:
    if choice is None or callable(choice):
        return choice is None or choice(suffix)
    return any(suffix == pattern or fnmatch.fnmatch(f".{suffix}", pattern) for pattern in choice)
