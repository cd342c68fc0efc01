"""Nodes whose values do not come from the block: row numbers, random values, downloads."""

from __future__ import annotations

import secrets
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skate.data._expressions.expr import Expr
from skate.data._expressions.fingerprints import ByIdentity
from skate.data._expressions.nodes import ColumnExpr, node
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from skate.data._expressions.context import EvaluationContext
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING

from skate.air import _filesystems as filesystems
from skate.data._expressions.arithmetic import is_text
from skate.data._io import retrying

if TYPE_CHECKING:
    import pyarrow.fs

_ROWS_PER_TASK_BITS = 33
_INSTANCE_BITS = 64
_logger = logging.getLogger(__name__)
# More threads than cores, because they mostly wait for the network or the disk.
_THREADS = 32


def _instance_id() -> int:
    """Return an id that distinguishes otherwise equal nodes, also after pickling."""
    return secrets.randbits(_INSTANCE_BITS)


@node
class MonotonicallyIncreasingIdExpr(Expr):
    """Number the rows: the task index in the upper bits, the position within the task in the lower 33."""

    data_type: DataType = field(init=False, default=DataType(pa.int64()))

    def own_key(self) -> Hashable:
        """Return the instance id: no two nodes are equal."""
        return ByIdentity(self)

    def structurally_equals(self, other: Any) -> bool:
        """Return False, even for the node itself: results cannot be shared."""
        return False

    def is_deterministic(self) -> bool:
        """Return False: the values depend on the position of the rows."""
        return False

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return False."""
        return False

    def values(self, rows: int, context: EvaluationContext) -> pa.Array:
        """Return the numbers of the rows of a block."""
        first = (context.task_index << _ROWS_PER_TASK_BITS) + context.row_offset
        return pa.array(np.arange(first, first + rows, dtype=np.int64))


@node
class RandomExpr(Expr):
    """Draw a number from the interval [0, 1) for each row.

    Args:
        seed: Seed of the numbers; without a seed, they differ for every execution.
        reseed_after_execution: Whether each execution of the dataset gives other numbers for the same seed.
    """

    seed: int | None = None
    reseed_after_execution: bool = True
    _instance_id: int = field(default_factory=_instance_id, kw_only=True)
    data_type: DataType = field(init=False, default=DataType(pa.float64()))

    def own_key(self) -> Hashable:
        """Return the arguments."""
        return (self.seed, self.reseed_after_execution)

    def is_deterministic(self) -> bool:
        """Return False, even with a seed: the values depend on the position of the rows."""
        return False

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return False."""
        return False

    def values(self, rows: int, context: EvaluationContext, stream: int) -> pa.Array:
        """Return the numbers of the rows of a block; they do not depend on how a task splits its rows into blocks."""
        if self.seed is None:
            entropy = _entropy(self._instance_id, context, stream)
        else:
            execution = context.execution_index if self.reseed_after_execution else 0
            entropy = [abs(self.seed), int(self.seed < 0), execution, context.task_index]
        bits = np.random.PCG64(entropy)
        bits.advance(context.row_offset)  # one step per number
        return pa.array(np.random.Generator(bits).random(rows))


@node
class UUIDExpr(Expr):
    """Generate a random UUID (version 4) for each row, as text."""

    _instance_id: int = field(default_factory=_instance_id, kw_only=True)
    data_type: DataType = field(init=False, default=DataType(pa.string()))

    def own_key(self) -> Hashable:
        """Return a constant: all instances are equal."""
        return None

    def is_deterministic(self) -> bool:
        """Return False."""
        return False

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Return False."""
        return False

    def values(self, rows: int, context: EvaluationContext, stream: int) -> pa.Array:
        """Return the UUIDs of the rows of a block."""
        bits = np.random.PCG64(_entropy(self._instance_id, context, stream))
        bits.advance(2 * context.row_offset)  # two steps of 64 bits per UUID
        raw = bits.random_raw(2 * rows).reshape(rows, 2)
        return _uuid_text(raw.astype(">u8").view(np.uint8).reshape(rows, 16))


@node
class DownloadExpr(Expr):
    """Download the content of the URIs in a column.

    Args:
        uri_column_name: The column of URIs.
        filesystem: The filesystem; derived from the URIs by default.
        _source: Expression for the URIs; the column, unless a planner replaced it.
    """

    uri_column_name: str
    filesystem: Any = None
    _source: Expr | None = field(default=None, kw_only=True)
    data_type: DataType = field(init=False, default=DataType(pa.binary()))

    def __post_init__(self) -> None:
        if not isinstance(self.uri_column_name, str):
            raise TypeError(f"download() takes the name of a column of URIs, got {self.uri_column_name!r}")

    @property
    def source(self) -> Expr:
        """The expression that computes the URIs."""
        return ColumnExpr(self.uri_column_name) if self._source is None else self._source

    def children(self) -> tuple[Expr, ...]:
        """Return the expression that computes the URIs."""
        return (self.source,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the downloads of other URIs."""
        (source,) = children
        return DownloadExpr(self.uri_column_name, self.filesystem, _source=source)

    def own_key(self) -> Hashable:
        """Return the column and the filesystem."""
        return (self.uri_column_name, ByIdentity(self.filesystem))


def _entropy(instance_id: int, context: EvaluationContext, stream: int) -> list[int]:
    seed = secrets.randbits(128) if context.seed is None else context.seed
    return [seed, context.execution_index, context.task_index, instance_id, stream]


def _uuid_text(octets: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    """Format 16 random bytes per row as UUIDs, without creating Python objects."""
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40  # version 4
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # the variant of RFC 9562
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    hexadecimal = np.empty((len(octets), 32), np.uint8)
    hexadecimal[:, 0::2] = digits[octets >> 4]
    hexadecimal[:, 1::2] = digits[octets & 0x0F]
    text = np.insert(hexadecimal, [8, 12, 16, 20], ord("-"), axis=1)
    offsets = np.arange(0, text.size + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(text))


def download(uris: pa.Array | pa.ChunkedArray, filesystem: pyarrow.fs.FileSystem | None) -> Any:
    """Return the content of each URI; null for a null, and for a URI that cannot be read.

    A broken URI does not fail the others; a warning reports the number of failures and the first one.

    Raises:
        pa.ArrowTypeError: The URIs are not text.
        ImportError: A URI scheme needs a package that is not installed.
    """
    if pa.types.is_null(uris.type):
        return pa.nulls(len(uris), pa.binary())
    if not is_text(uris.type):
        raise pa.ArrowTypeError("a download needs URIs as text")
    names = uris.to_pylist()
    failures: list[tuple[str, Exception]] = []
    with ThreadPoolExecutor(max_workers=max(1, min(_THREADS, len(names)))) as pool:
        found: Iterator[bytes | None] = pool.map(_download_one, names, repeat(filesystem), repeat(failures))
        values = list(found)
    if failures:
        uri, error = failures[0]
        _logger.warning(
            "%d of %d downloads failed and are null; first failure: %r: %s",
            len(failures),
            len(names),
            uri,
            error,
        )
    return pa.array(values, pa.binary())


def _download_one(uri: str | None, filesystem: Any, failures: list[tuple[str, Exception]]) -> bytes | None:
    if uri is None:
        return None
    try:
        return retrying.call(lambda: _read_uri(uri, filesystem), f"Downloading {uri}")
    except (OSError, ValueError) as error:
        failures.append((uri, error))
        return None


def _read_uri(uri: str, filesystem: Any) -> bytes:
    source, path = filesystems.resolve(uri, filesystem)
    # No decompression: a download returns the stored bytes.
    with source.open_input_stream(path, compression=None) as stream:
        return stream.readall()  # type: ignore[no-any-return]  # pyarrow has no types
