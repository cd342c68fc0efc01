"""Filesystems of paths, and their properties."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import pyarrow.fs as pafs

from skate.air import _arguments as arguments
from skate.air import _optional

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]+)://")  # one letter would be a drive: C:\data
_LOCAL_SCHEMES = {"file", "local"}
_OBJECT_STORES = (
    pafs.S3FileSystem,
    pafs.GcsFileSystem,
    *filter(None, [getattr(pafs, "AzureFileSystem", None)]),
)
_OBJECT_STORE_PROTOCOLS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"}
# Opened by pyarrow; the others go through fsspec.
_ARROW_SCHEMES = {"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"}
_FSSPEC_PACKAGES = {
    "http": "aiohttp",
    "https": "aiohttp",
    "az": "adlfs",
    "hf": "huggingface_hub",
    "oss": "ossfs",
}


def scheme_of(path: str) -> str:
    """Return the scheme of a URI in lower case, `""` for a plain path.

    >>> scheme_of("s3://bucket/key"), scheme_of("/data/a.csv")
    ('s3', '')
    """
    match = _SCHEME.match(path)
    return match.group(1).lower() if match else ""


def resolve(path: str, filesystem: Any = None) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a path, and the path within that filesystem.

    Args:
        path: A plain path or a URI.
        filesystem: A pyarrow or fsspec filesystem; determined by the URI's scheme if not given.

    Raises:
        ValueError: No filesystem is known for the scheme, or its location cannot be resolved.
    """
    if filesystem is not None:
        wrapped = wrap(filesystem)
        return wrapped, without_scheme(path, wrapped)
    scheme = scheme_of(path)
    if not scheme or scheme in _LOCAL_SCHEMES:
        return pafs.LocalFileSystem(), _local(path)
    if scheme in _ARROW_SCHEMES:
        return _from_arrow(path)
    return _from_fsspec(scheme), path if scheme in ("http", "https") else without_scheme(path)


def wrap(filesystem: Any) -> pafs.FileSystem:
    """Return a filesystem as a pyarrow filesystem.

    Raises:
        TypeError: It is neither a pyarrow nor an fsspec filesystem.
    """
    if isinstance(filesystem, pafs.FileSystem):
        return filesystem
    # An fsspec object exists only where fsspec is installed.
    if any(base.__module__.startswith("fsspec.") for base in type(filesystem).__mro__):
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    raise TypeError(
        f"filesystem is a {type(filesystem).__name__}: pass a pyarrow.fs.FileSystem or an fsspec AbstractFileSystem"
    )


def check(name: str, filesystem: Any) -> None:
    """Raise TypeError unless a parameter is a filesystem or None.

    Args:
        name: The parameter.
        filesystem: The given value.
    """
    try:
        if filesystem is not None:
            wrap(filesystem)
    except TypeError:
        must = "a pyarrow.fs.FileSystem, an fsspec AbstractFileSystem or None"
        arguments.refuse(name, must, filesystem)


def without_scheme(path: str, filesystem: pafs.FileSystem | None = None) -> str:
    """Return the path of a URI within its filesystem; for HTTP, that is the whole URL.

    >>> without_scheme("s3://bucket/key")
    'bucket/key'
    """
    scheme = scheme_of(path)
    if scheme in ("http", "https"):
        return path
    if scheme in _LOCAL_SCHEMES or (not scheme and isinstance(filesystem, pafs.LocalFileSystem)):
        return _local(path)
    return path.split("://", 1)[1].removeprefix("anonymous@") if scheme else path


def is_local(filesystem: pafs.FileSystem) -> bool:
    """Return whether files are on this machine, without latency to hide."""
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return is_local(filesystem.base_fs)
    return isinstance(filesystem, pafs.LocalFileSystem)


def commits_on_close(filesystem: pafs.FileSystem) -> bool:
    """Return whether a file becomes visible only when its writer closes it, as in object stores."""
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return commits_on_close(filesystem.base_fs)
    if isinstance(filesystem, _OBJECT_STORES):
        return True
    return bool(_OBJECT_STORE_PROTOCOLS & set(_fsspec_protocols(filesystem)))


def is_http(filesystem: pafs.FileSystem) -> bool:
    """Return whether the filesystem is fsspec's HTTP filesystem, which cannot list folders."""
    return bool({"http", "https"} & set(_fsspec_protocols(filesystem)))


def _fsspec_protocols(filesystem: pafs.FileSystem) -> tuple[str, ...]:
    handler = getattr(filesystem, "handler", None)
    protocol = getattr(getattr(handler, "fs", None), "protocol", ())
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _local(path: str) -> str:
    scheme = scheme_of(path)
    if scheme:
        path = path[len(scheme) + 3 :]
    # Absolute, because the reading process may have another working directory.
    return os.path.abspath(os.path.expanduser(path))


def _from_arrow(path: str) -> tuple[pafs.FileSystem, str]:
    scheme, rest = path.split("://", 1)
    location, _, inside = rest.partition("/")
    _, _, query = rest.partition("?") if scheme.lower() == "s3" else ("", "", "")
    # Only the bucket is resolved: keys may contain characters that a URI must not, such as spaces and `#`.
    root = f"{scheme.lower()}://{location.partition('?')[0]}" + (f"/?{query}" if "=" in query else "")
    filesystem, base = _arrow_root(root)
    if "=" in query:
        inside = inside.partition("?")[0]
    return filesystem, f"{base.rstrip('/')}/{inside}" if inside else base


@functools.lru_cache(maxsize=256)
def _arrow_root(root: str) -> tuple[pafs.FileSystem, str]:
    # Cached, because it looks up the region of an S3 bucket over the network.
    try:
        if root.startswith("s3://anonymous@"):
            bucket = root.removeprefix("s3://anonymous@")
            return pafs.S3FileSystem(anonymous=True, region=pafs.resolve_s3_region(bucket)), bucket
        return pafs.FileSystem.from_uri(root)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot open {root}: {error}. Check the name, or pass `filesystem=` with credentials and region"
        ) from error


@functools.lru_cache(maxsize=64)
def _from_fsspec(scheme: str) -> pafs.FileSystem:
    fsspec = _optional.load("fsspec", f"a path that starts with {scheme}://")
    try:
        filesystem = fsspec.filesystem(scheme)
    except ImportError as error:
        package = _FSSPEC_PACKAGES.get(scheme)
        hint = f"pip install {package}" if package else str(error)
        raise ImportError(f"a path that starts with {scheme}:// needs another package: {hint}") from error
    except ValueError as error:
        raise ValueError(
            f"no filesystem is known for {scheme}://: pass `filesystem=` with a pyarrow or fsspec filesystem"
        ) from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
