"""Resolve the paths that a user passes (files, folders, globs, URIs) to the list of files to read."""

from __future__ import annotations

import http
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems

# Parallel look-ups keep long lists of S3 or HTTP paths fast.
_LOOKUP_CONCURRENCY = 32
_WILDCARD = re.compile(r"[*?\[{]")
# Number of files per request or system call.
_FILES_PER_LOOKUP = 64

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_NOT_FOUND_STATUSES = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE)
_DENIED_STATUSES = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        path: Path in the form that the filesystem expects.
        size: Size in bytes; None if the filesystem does not report it.
        changed: Modification time in nanoseconds; None if the filesystem does not report it.
        start: Offset of the first byte to read.
        stop: End offset, exclusive; None for the end of the file.
    """

    path: str
    size: int | None
    changed: int | None = None
    start: int = 0
    stop: int | None = None

    @property
    def read_bytes(self) -> int:
        """The number of bytes to read; 0 if unknown."""
        return (self.size or 0) if self.stop is None else self.stop - self.start

    @property
    def identity(self) -> str:
        """An identifier of the content, as precise as a listing allows."""
        inside = "" if self.stop is None else f"&bytes={self.start}-{self.stop}"
        return f"{self.path}?size={self.size}&changed={self.changed}{inside}"


def as_list(paths: Any) -> list[str]:
    """Return one or several paths as a list of strings.

    Raises:
        TypeError: An element is not a path.
        ValueError: The list is empty.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, Iterable):
        raise TypeError(f"paths is {paths!r}: pass a path or a list of paths")
    found = []
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"a path is {path!r}: pass strings or pathlib paths")
        found.append(os.fspath(path))
    if not found:
        raise ValueError("the list of paths is empty: pass at least one file or folder")
    return found


def resolve_all(paths: Paths, filesystem: Any = None) -> tuple[pafs.FileSystem, list[str]]:
    """Return the filesystem that all paths share, and the paths in the form that it expects.

    Raises:
        ValueError: The paths belong to different filesystems.
    """
    given = as_list(paths)
    found, first = filesystems.resolve(given[0], filesystem)
    if filesystem is not None:
        return found, [first, *(filesystems.without_scheme(path, found) for path in given[1:])]
    resolved = [first]
    for path in given[1:]:
        other, inside = filesystems.resolve(path)
        if other != found:
            raise ValueError(
                f"{given[0]} and {path} are on different filesystems: read them separately and use Dataset.union"
            )
        resolved.append(inside)
    return found, resolved


def expand(
    paths: Sequence[str],
    filesystem: pafs.FileSystem,
    *,
    extensions: Sequence[str] | None = None,
    ignore_missing: bool = False,
    keep: Callable[[str], bool] | None = None,
    skip: Iterable[str] = (),
) -> list[SourceFile]:
    """Return the files that paths refer to, in the order of the paths and sorted within a folder.

    Folders are listed recursively, without hidden entries and those that start with `_`. A path that does not exist
    and contains a wildcard is a glob: `*`, `?`, `[ab]`, `{a,b}` within a name, `**` for any depth of folders.

    Args:
        paths: Resolved paths of the filesystem.
        filesystem: The filesystem.
        extensions: Extensions, with or without a leading dot; other files are skipped.
        ignore_missing: Skip paths that do not exist.
        keep: Return whether to read the file with this path.
        skip: Paths to exclude without looking them up.

    Raises:
        FileNotFoundError: A path does not exist.
        PermissionError: A server denies access.
        ConnectionError: A server does not respond, or fails.
        ValueError: No file is left to read.
    """
    skipped = set(skip)
    wanted = [path for path in paths if path not in skipped]
    files: list[SourceFile] = []
    any_found = False
    for path, info in zip(wanted, _look_up(wanted, filesystem), strict=True):
        found = list(_files_of(path, info, filesystem))
        is_lost = not found and info.type == pafs.FileType.NotFound
        if is_lost and not (ignore_missing and is_missing(path, filesystem)):
            raise explain_missing(path, filesystem, is_glob=_WILDCARD.search(path) is not None)
        any_found = any_found or bool(found)
        files.extend(file for file in found if file.path not in skipped)
    if not any_found:
        raise ValueError(
            f"no files found to read in {_shorten(paths)}: the folders are empty, or no path exists"
        )
    found = filter_files(files, extensions, None)
    if files and not found:
        raise ValueError(
            f"No input files found to read: none has one of the extensions {list(extensions or ())}. "
            f"{_shorten(paths)} holds {_shorten([file.path for file in files])}: pass file_extensions=None to read all"
        )
    return filter_files(found, None, keep)


def filter_files(
    files: Iterable[SourceFile],
    extensions: Sequence[str] | None,
    keep: Callable[[str], bool] | None,
    skip: Iterable[str] = (),
) -> list[SourceFile]:
    """Return the files whose paths match the extensions and the filter."""
    skipped = set(skip)
    return [
        file
        for file in files
        if file.path not in skipped
        and has_extension(file.path, extensions)
        and (keep is None or keep(file.path))
    ]


def has_extension(path: str, extensions: Sequence[str] | None) -> bool:
    """Return whether a path ends with one of the extensions; a query such as `?versionId=` is ignored.

    >>> has_extension("a.CSV", ["csv"]), has_extension("a.csv.crc", [".csv"])
    (True, False)
    """
    if extensions is None:
        return True
    name = path.rpartition("/")[2].partition("?")[0].lower()
    return any(name.endswith("." + extension.lower().removeprefix(".")) for extension in extensions)


def _look_up(paths: list[str], filesystem: pafs.FileSystem) -> list[pafs.FileInfo]:
    batches = [paths[i : i + _FILES_PER_LOOKUP] for i in range(0, len(paths), _FILES_PER_LOOKUP)]
    if filesystems.is_http(filesystem):
        batches = [[path] for path in paths]  # fsspec requests them sequentially
    try:
        if len(batches) <= 1:
            return [info for batch in batches for info in filesystem.get_file_info(batch)]
        with ThreadPoolExecutor(min(_LOOKUP_CONCURRENCY, len(batches))) as pool:
            return [info for infos in pool.map(filesystem.get_file_info, batches) for info in infos]
    except OSError as error:
        raise _cannot_list(_shorten(paths), error) from error


def _files_of(path: str, info: pafs.FileInfo, filesystem: pafs.FileSystem) -> Iterator[SourceFile]:
    if info.type == pafs.FileType.File:
        yield _source_file(info, path)
    elif info.type == pafs.FileType.Directory:
        yield from _folder(path, filesystem)
    elif (
        info.type == pafs.FileType.NotFound and _WILDCARD.search(path) and not filesystems.is_http(filesystem)
    ):
        for match in _glob(path, filesystem):
            yield from _files_of(match.path, match, filesystem)


def _folder(path: str, filesystem: pafs.FileSystem) -> Iterator[SourceFile]:
    base = path.rstrip("/")
    found = [
        info
        for info in _list(base, filesystem, recursive=True)
        if info.type == pafs.FileType.File and not _is_hidden(info.path[len(base) :])
    ]
    found.sort(key=lambda info: info.path)
    return (_source_file(info, info.path) for info in found)


def _is_hidden(relative: str) -> bool:
    # `_` marks files that other programs keep beside data (_SUCCESS, _delta_log); `_key=value` is a partition.
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in relative.split("/")
        if part
    )


def _list(path: str, filesystem: pafs.FileSystem, *, recursive: bool) -> list[pafs.FileInfo]:
    try:
        selector = pafs.FileSelector(path, allow_not_found=True, recursive=recursive)
        return filesystem.get_file_info(selector)  # type: ignore[no-any-return]
    except OSError as error:
        raise _cannot_list(path, error) from error


def _glob(pattern: str, filesystem: pafs.FileSystem) -> list[pafs.FileInfo]:
    parts = pattern.split("/")
    fixed = list(itertools.takewhile(lambda part: not _WILDCARD.search(part), parts))
    found = [pafs.FileInfo("/".join(fixed), pafs.FileType.Directory)]
    rest = parts[len(fixed) :]
    while rest:
        part, rest = rest[0], rest[1:]
        if "**" in part:  # match the rest on one recursive listing
            matches = re.compile(_regex("/".join([part, *rest]))).fullmatch
            found = [
                info
                for folder in found
                for info in _list(folder.path, filesystem, recursive=True)
                if matches(posixpath.relpath(info.path, folder.path))
                and not _is_hidden(info.path[len(folder.path) :])
            ]
            rest = []
        elif _WILDCARD.search(part):
            matches = re.compile(_regex(part)).fullmatch
            found = [
                info
                for folder in found
                for info in _list(folder.path, filesystem, recursive=False)
                if matches(info.base_name) and (part[0] in "._" or not _is_hidden(info.base_name))
            ]
        else:
            found = filesystem.get_file_info([f"{folder.path}/{part}" for folder in found])
            found = [info for info in found if info.type != pafs.FileType.NotFound]
        if rest:
            found = [info for info in found if info.type == pafs.FileType.Directory]
    return sorted(found, key=lambda info: info.path)


def _regex(pattern: str) -> str:
    out, position = "", 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            out, position = out + "(?:.*/)?", position + 3
            continue
        if pattern.startswith("**", position):
            out, position = out + ".*", position + 2
            continue
        char = pattern[position]
        closing = {"[": "]", "{": "}"}.get(char)
        end = pattern.find(closing, position + 1) if closing else -1
        if end > 0:
            inner = pattern[position + 1 : end]
            if char == "[":
                out += "[" + inner.replace("!", "^", 1).replace("\\", r"\\") + "]"
            else:
                out += "(?:" + "|".join(_regex(choice) for choice in inner.split(",")) + ")"
            position = end + 1
            continue
        out += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
        position += 1
    return out


def _source_file(info: pafs.FileInfo, path: str) -> SourceFile:
    # For fsspec files of unknown size, such as HTTP responses, pyarrow reports 0.
    size = info.size if info.size is not None and info.size >= 0 else None
    return SourceFile(path, size, info.mtime_ns if info.mtime is not None else None)


def _cannot_list(path: str, error: OSError) -> OSError:
    return type(error)(
        f"cannot look up {path}: {error}. Check that it exists, and that the credentials allow reading it."
    )


def _shorten(paths: Sequence[str]) -> str:
    listed = ", ".join(paths[:3])
    return listed if len(paths) <= 3 else f"{listed} and {len(paths) - 3} more"


def explain_missing(path: str, filesystem: pafs.FileSystem, *, is_glob: bool) -> OSError:
    """Return the error for a path that a filesystem did not find.

    HTTP filesystems report any failure as a missing file, and S3 does not distinguish a missing bucket from a
    missing key, so this sends a second request.

    Args:
        path: Path in the form that the filesystem expects.
        filesystem: The filesystem.
        is_glob: The path is a pattern that matched nothing.

    Returns:
        A `FileNotFoundError`, a `PermissionError` if access is denied, or a `ConnectionError` if the server fails.
    """
    if is_glob:
        return FileNotFoundError(f"no file matches {path}. Check the path, or pass ignore_missing_paths=True")
    if filesystems.is_http(filesystem):
        failed = _http_failure(path, filesystem)
        if failed is not None:
            return failed
    bucket = path.partition("/")[0]
    if isinstance(filesystem, pafs.S3FileSystem) and not _has_bucket(bucket, filesystem):
        return FileNotFoundError(
            f"no such bucket: {bucket} (looking for s3://{path}). Check its name, the region and the endpoint, or pass "
            "another filesystem="
        )
    return FileNotFoundError(
        f"no such file or folder: {path}. Check the path, or pass ignore_missing_paths=True"
    )


def is_missing(path: str, filesystem: pafs.FileSystem) -> bool:
    """Return whether a path is missing, rather than unreachable."""
    return not filesystems.is_http(filesystem) or _http_failure(path, filesystem) is None


def _http_failure(url: str, filesystem: pafs.FileSystem) -> OSError | None:
    """Return the error that prevents access to a URL; None if the server reports that it does not exist."""
    try:
        filesystem.handler.fs.info(url)
    except FileNotFoundError as error:
        cause = error.__cause__
    except OSError as error:
        cause = error
    else:
        return None  # it exists by now
    status = getattr(cause, "status", None)
    if cause is None or status in _NOT_FOUND_STATUSES:
        return None
    if status is None:
        return ConnectionError(f"cannot reach {url}: {cause}. Check the address and the network")
    answer = f"{url} returned {status} {http.HTTPStatus(status).phrase}"
    if status in _DENIED_STATUSES:
        return PermissionError(
            f"{answer}: pass filesystem= with credentials, "
            "such as fsspec.filesystem('http', client_kwargs={'headers': …})"
        )
    return ConnectionError(f"{answer}: the server failed, try again later")


def _has_bucket(bucket: str, filesystem: pafs.FileSystem) -> bool:
    try:
        return bool(filesystem.get_file_info(bucket).type != pafs.FileType.NotFound)
    except OSError:  # reading keys does not imply permission to look up the bucket
        return True
