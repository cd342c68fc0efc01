"""The bytes that URIs name, many at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.air import _filesystems as filesystems
from skate.data._expressions.arithmetic import is_text
from skate.data._io import retrying

if TYPE_CHECKING:
    import pyarrow.fs

_logger = logging.getLogger(__name__)

# Threads wait for the network or the disk nearly all of the time, so there are far more than cores.
_THREADS = 32


def contents(uris: pa.Array | pa.ChunkedArray, filesystem: pyarrow.fs.FileSystem | None) -> Any:
    """Return the bytes that each URI names; null for a null, and for one that cannot be read.

    One bad link among a million is no reason to lose the others; how many failed, and the first of them, is logged.

    Raises:
        pa.ArrowTypeError: The URIs are no text.
        ImportError: A package that a kind of URI needs is not installed.
    """
    if pa.types.is_null(uris.type):
        return pa.nulls(len(uris), pa.binary())
    if not is_text(uris.type):
        raise pa.ArrowTypeError("a download needs URIs as text")
    names = uris.to_pylist()
    failures: list[tuple[str, Exception]] = []
    with ThreadPoolExecutor(max_workers=max(1, min(_THREADS, len(names)))) as pool:
        found: Iterator[bytes | None] = pool.map(_read, names, repeat(filesystem), repeat(failures))
        values = list(found)
    if failures:
        uri, error = failures[0]
        _logger.warning(
            "%d of %d downloads failed, and are null: %r: %s", len(failures), len(names), uri, error
        )
    return pa.array(values, pa.binary())


def _read(uri: str | None, filesystem: Any, failures: list[tuple[str, Exception]]) -> bytes | None:
    if uri is None:
        return None
    try:
        return retrying.call(lambda: _bytes_of(uri, filesystem), f"Downloading {uri}")
    except (OSError, ValueError) as error:
        failures.append((uri, error))
        return None


def _bytes_of(uri: str, filesystem: Any) -> bytes:
    source, path = filesystems.resolve(uri, filesystem)
    # As it is: what is stored compressed is a download of compressed bytes.
    with source.open_input_stream(path, compression=None) as stream:
        return stream.readall()  # type: ignore[no-any-return]  # pyarrow has no types
