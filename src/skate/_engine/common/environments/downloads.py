"""Downloads of packages from ``https://``, ``s3://`` and similar URIs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from skate._base.errors import RuntimeEnvSetupError

# The packages to install for reading from a store, by scheme.
_PACKAGES = {
    "s3": "'smart_open[s3]'",
    "gs": "'smart_open[gcs]'",
    "azure": "'smart_open[azure]'",
    "abfss": "adlfs",
    "hdfs": "'fsspec[hdfs]'",
}

_TIMEOUT_SECONDS = 60


def local_path(uri: str) -> Path:
    """Return the path of a ``file://`` URI."""
    parts = urlsplit(uri)
    return Path(unquote(parts.netloc + parts.path))


def download(uri: str, target: Path) -> None:
    """Copy the contents of a URI into a file.

    Raises:
        RuntimeEnvSetupError: It cannot be read, or a package for reading it is not installed.
    """
    try:
        with _open(uri) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except RuntimeEnvSetupError:
        raise
    except Exception as error:  # every store has its own errors
        raise RuntimeEnvSetupError(f"Could not download {uri}: {type(error).__name__}: {error}") from error


def _open(uri: str) -> IO[bytes]:
    scheme = urlsplit(uri).scheme
    if scheme == "https":
        from urllib.request import urlopen

        response: IO[bytes] = urlopen(uri, timeout=_TIMEOUT_SECONDS)
        return response
    if scheme not in _PACKAGES:
        raise RuntimeEnvSetupError(f"Cannot download {uri}: {scheme}:// URIs are not supported.")
    smart_open: Any
    fsspec: Any
    try:
        import smart_open  # type: ignore[import-not-found, no-redef, unused-ignore]
    except ImportError:
        try:
            import fsspec  # type: ignore[import-not-found, import-untyped, no-redef, unused-ignore]
        except ImportError:
            raise RuntimeEnvSetupError(
                f"Reading {uri} needs smart_open or fsspec: pip install {_PACKAGES[scheme]}"
            ) from None
        opened: IO[bytes] = fsspec.open(uri, "rb").open()
        return opened
    stream: IO[bytes] = smart_open.open(uri, "rb")
    return stream
