"""Archives of packages: written, unpacked, and downloaded from ``https://``, ``s3://`` and similar URIs."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from skate._base.errors import RuntimeEnvSetupError
from skate._engine.common.environments.folders import Entry

# Zip files cannot store times before 1980, and only contents matter.
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)

# The packages to install for reading from a store, by scheme.
_PACKAGES = {
    "s3": "'smart_open[s3]'",
    "gs": "'smart_open[gcs]'",
    "azure": "'smart_open[azure]'",
    "abfss": "adlfs",
    "hdfs": "'fsspec[hdfs]'",
}

_TIMEOUT_SECONDS = 60


def write_zip(entries: Iterable[Entry], target: Path) -> None:
    """Write files into a zip archive; equal files give an equal archive."""
    with zipfile.ZipFile(
        target, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
    ) as archive:
        for entry in entries:
            name = entry.name + "/" if entry.is_directory else entry.name
            info = zipfile.ZipInfo(name, _TIMESTAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if entry.is_directory or entry.is_executable else 0o644
            info.external_attr = ((stat.S_IFDIR if entry.is_directory else stat.S_IFREG) | mode) << 16
            if entry.is_directory:
                archive.writestr(info, b"")
                continue
            with entry.path.open("rb") as source, archive.open(info, "w", force_zip64=True) as file:
                while chunk := source.read(1 << 20):
                    file.write(chunk)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip or tar archive into a new directory.

    Raises:
        RuntimeEnvSetupError: The file is not an archive, or is damaged.
    """
    target.mkdir(parents=True, mode=0o700)
    try:
        if archive.name.endswith((".tar.gz", ".tgz", ".tar.xz")):
            with tarfile.open(archive) as tar:
                if not hasattr(tarfile, "data_filter"):
                    raise RuntimeEnvSetupError(
                        f"Unpacking {archive.name} safely needs Python 3.11.4 or newer; use a .zip archive."
                    )
                tar.extractall(target, filter="data")
        else:
            _unpack_zip(archive, target)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise RuntimeEnvSetupError(f"{archive} cannot be unpacked: {error}") from error


def _unpack_zip(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            # `extract` keeps names inside the target, but ignores permissions.
            path = file.extract(info, target)
            mode = info.external_attr >> 16
            if mode & 0o100 and not info.is_dir():
                os.chmod(path, 0o755)


def single_top_directory(folder: Path) -> Path | None:
    """Return the directory that contains all of an unpacked archive, if there is exactly one."""
    children = [child for child in folder.iterdir() if child.name != "__MACOSX"]
    if len(children) == 1 and children[0].is_dir():
        return children[0]
    return None


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
