"""Why a path is not there: a wrong name, a bucket that does not exist, a server that refuses or does not answer."""

from __future__ import annotations

import http

import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems

_GONE = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE)
_REFUSED = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)


def explained(path: str, filesystem: pafs.FileSystem, *, is_glob: bool) -> OSError:
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
