"""Copy folders from cloud storage to this machine."""

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
    """Return a local folder with the files of a source. A local folder is returned as it is.

    Args:
        source: A local path or a URI.
        tries: The maximum number of attempts.
        timeout: The timeout of an attempt in seconds; None for no limit.

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
                raise RequestError(f"Could not download {source!r}: {error!r}", 404, param="model") from error
    raise AssertionError("unreachable: `tries` is positive")


def download_folder(uri: str) -> Path:
    """Copy a folder from cloud storage, unless it is cached already, and return the local folder.

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
        # pyarrow supports only one of the schemes for Azure.
        fs.copy_files(uri.replace("azure://", "abfss://", 1), str(partial))
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process has downloaded it meanwhile
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
