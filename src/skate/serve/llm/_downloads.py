"""Folders in cloud storage, copied to this machine."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from pathlib import Path

from skate._api import variables
from skate.serve.llm._protocol.base import RequestError

__all__ = ["download", "download_folder"]


async def download(source: str, *, tries: int = 1, timeout: float | None = None) -> Path:
    """Return a local folder with the files of a source, which is a local folder or a URI.

    Args:
        source: The path or the URI.
        tries: How often a download is tried.
        timeout: The most seconds for one try; None for no limit.

    Raises:
        RequestError: If the source cannot be read.
    """
    if "://" not in source:
        return Path(source)
    for attempt in range(tries):
        try:
            return await asyncio.wait_for(asyncio.to_thread(download_folder, source), timeout)
        except (OSError, TimeoutError) as error:
            if attempt == tries - 1:
                raise RequestError(
                    f"{source!r} cannot be downloaded: {error!r}", 404, param="model"
                ) from error
    raise AssertionError("unreachable: `tries` is positive")


def download_folder(uri: str) -> Path:
    """Copy a folder from cloud storage, unless it has been copied already, and return the local folder.

    Args:
        uri: The URI of the folder: `s3://…`, `gs://…`, `abfss://…`, `azure://…`.

    Raises:
        ImportError: If pyarrow is not installed.
        OSError: If the folder cannot be read.
    """
    try:
        from pyarrow import fs
    except ImportError as error:
        raise ImportError(f"Reading {uri!r} needs pyarrow: pip install 'skate[llm]'") from error
    root = Path(variables.cache_folder()) / "llm"
    target = root / hashlib.sha256(uri.encode()).hexdigest()[:32]
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=root))
    try:
        # pyarrow knows Azure's storage under one name.
        fs.copy_files(uri.replace("azure://", "abfss://", 1), str(partial))
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
