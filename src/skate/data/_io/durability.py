"""Making sure that what was written to this machine's disk is there after a power failure."""

from __future__ import annotations

import os

import pyarrow.fs as pafs


def flush(filesystem: pafs.FileSystem, path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk; stores elsewhere see to that themselves."""
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
