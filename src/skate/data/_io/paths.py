"""Paths: from what a user names (files, folders, globs, URIs) to the list of files to read."""

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

# Asking for many single files at once is what makes a long list of S3 or HTTP paths bearable.
_LOOKUPS_AT_A_TIME = 32
_WILDCARD = re.compile(r"[*?\[{]")
# One request, or one call to the system, for as many files as this.
_FILES_PER_LOOKUP = 64

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_GONE = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE)
_REFUSED = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        path: As its filesystem wants it.
        size: Bytes; None where the filesystem does not say.
        changed: When it was last written, in nanoseconds; None where the filesystem does not say.
        start: Where reading starts, in bytes.
        stop: Where it stops; None at the end.
    """

    path: str
    size: int | None
    changed: int | None = None
    start: int = 0
    stop: int | None = None

    @property
    def read_bytes(self) -> int:
        """How many bytes are read; 0 if that is unknown."""
        return (self.size or 0) if self.stop is None else self.stop - self.start

    @property
    def identity(self) -> str:
        """Name exactly this content, as far as a listing can tell."""
        inside = "" if self.stop is None else f"&bytes={self.start}-{self.stop}"
        return f"{self.path}?size={self.size}&changed={self.changed}{inside}"


def as_list(paths: Any) -> list[str]:
    """Return one path or several as a list of strings.

    Raises:
        TypeError: Something is no path.
        ValueError: The list is empty.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, Iterable):
        raise TypeError(f"paths is {paths!r}: pass a path or a list of paths")
    found = []
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"one of the paths is {path!r}: pass strings or pathlib paths")
        found.append(os.fspath(path))
    if not found:
        raise ValueError("the list of paths is empty: name at least one file or folder")
    return found


def resolve_all(paths: Paths, filesystem: Any = None) -> tuple[pafs.FileSystem, list[str]]:
    """Return the one filesystem that all paths share, and the paths as it wants them.

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
                f"{given[0]} and {path} are on different filesystems: read them one by one and unite the datasets"
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
    """Return the files that paths stand for, in the order of the paths and sorted inside a folder.

    Folders are listed recursively; inside them, what is hidden or starts with `_` is left out. A path that does not
    exist and holds a wildcard is a glob: `*`, `?`, `[ab]`, `{a,b}` within a name, `**` for any depth of folders.

    Args:
        paths: Resolved paths, all of the filesystem.
        filesystem: Where they are.
        extensions: Endings without or with a leading dot; other files are left out.
        ignore_missing: Leave out paths that do not exist.
        keep: Tells by its path whether a file is wanted.
        skip: Paths to leave out before anything is looked up.

    Raises:
        FileNotFoundError: A path does not exist.
        PermissionError: A server refuses it.
        ConnectionError: A server does not answer, or fails.
        ValueError: Nothing is left to read.
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
            f"no files found to read in {_shorten(paths)}: the folders are empty or all paths are missing"
        )
    found = chosen(files, extensions, None)
    if files and not found:
        raise ValueError(
            f"No input files found to read with the following file extensions: {list(extensions or ())}. "
            f"{_shorten(paths)} holds {_shorten([file.path for file in files])}: pass file_extensions=None to read all"
        )
    return chosen(found, None, keep)


def chosen(
    files: Iterable[SourceFile],
    extensions: Sequence[str] | None,
    keep: Callable[[str], bool] | None,
    skip: Iterable[str] = (),
) -> list[SourceFile]:
    """Return the files that are wanted, by their paths."""
    skipped = set(skip)
    return [
        file
        for file in files
        if file.path not in skipped
        and has_extension(file.path, extensions)
        and (keep is None or keep(file.path))
    ]


def has_extension(path: str, extensions: Sequence[str] | None) -> bool:
    """Whether a path ends with one of the extensions; a query such as `?versionId=` does not count.

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
        batches = [[path] for path in paths]  # fsspec asks for them one after the other
    try:
        if len(batches) <= 1:
            return [info for batch in batches for info in filesystem.get_file_info(batch)]
        with ThreadPoolExecutor(min(_LOOKUPS_AT_A_TIME, len(batches))) as pool:
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
        if info.type == pafs.FileType.File and not _hidden(info.path[len(base) :])
    ]
    found.sort(key=lambda info: info.path)
    return (_source_file(info, info.path) for info in found)


def _hidden(relative: str) -> bool:
    # `_` marks what other programs leave beside data (_SUCCESS, _delta_log); `_key=value` is a partition.
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
        if "**" in part:  # the rest is matched on one recursive listing
            matches = re.compile(_regex("/".join([part, *rest]))).fullmatch
            found = [
                info
                for folder in found
                for info in _list(folder.path, filesystem, recursive=True)
                if matches(posixpath.relpath(info.path, folder.path))
                and not _hidden(info.path[len(folder.path) :])
            ]
            rest = []
        elif _WILDCARD.search(part):
            matches = re.compile(_regex(part)).fullmatch
            found = [
                info
                for folder in found
                for info in _list(folder.path, filesystem, recursive=False)
                if matches(info.base_name) and (part[0] in "._" or not _hidden(info.base_name))
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
    # pyarrow gives 0 for files that fsspec knows no size of, HTTP responses for one.
    size = info.size if info.size is not None and info.size >= 0 else None
    return SourceFile(path, size, info.mtime_ns if info.mtime is not None else None)


def _cannot_list(path: str, error: OSError) -> OSError:
    return type(error)(
        f"cannot look up {path}: {error}. Please check that file exists and has properly configured access."
    )


def _shorten(paths: Sequence[str]) -> str:
    listed = ", ".join(paths[:3])
    return listed if len(paths) <= 3 else f"{listed} and {len(paths) - 3} more"


def explain_missing(path: str, filesystem: pafs.FileSystem, *, is_glob: bool) -> OSError:
    """Return the error for a path that a filesystem did not find.

    Filesystems for HTTP call everything missing that did not arrive, and S3 does not tell a missing bucket from a
    missing key: this asks once more.

    Args:
        path: As the filesystem wants it.
        filesystem: Where it is not.
        is_glob: It is a pattern that matched nothing.

    Returns:
        A `FileNotFoundError`, a `PermissionError` where the server refuses, or a `ConnectionError` where it fails.
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
            "filesystem= with others"
        )
    return FileNotFoundError(
        f"no such file or folder: {path}. Check the path, or pass ignore_missing_paths=True"
    )


def is_missing(path: str, filesystem: pafs.FileSystem) -> bool:
    """Whether a path that was not found is really missing, and not only out of reach."""
    return not filesystems.is_http(filesystem) or _http_failure(path, filesystem) is None


def _http_failure(url: str, filesystem: pafs.FileSystem) -> OSError | None:
    """Return what keeps a URL from being read; None if the server says that it does not exist."""
    try:
        filesystem.handler.fs.info(url)
    except FileNotFoundError as error:
        cause = error.__cause__
    except OSError as error:
        cause = error
    else:
        return None  # it has appeared since
    status = getattr(cause, "status", None)
    if cause is None or status in _GONE:
        return None
    if status is None:
        return ConnectionError(f"cannot reach {url}: {cause}. Check the address and the network")
    answer = f"{url} answers {status} {http.HTTPStatus(status).phrase}"
    if status in _REFUSED:
        return PermissionError(
            f"{answer}: pass filesystem= with credentials, "
            "such as fsspec.filesystem('http', client_kwargs={'headers': …})"
        )
    return ConnectionError(f"{answer}: the server fails, try again later")


def _has_bucket(bucket: str, filesystem: pafs.FileSystem) -> bool:
    try:
        return bool(filesystem.get_file_info(bucket).type != pafs.FileType.NotFound)
    except OSError:  # who may read keys need not be allowed to look at the bucket
        return True
