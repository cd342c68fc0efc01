"""Nodes whose values come from outside the block: numbers of rows, random values, files."""

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
# Threads wait for the network or the disk nearly all of the time, so there are far more than cores.
_THREADS = 32


def _instance_id() -> int:
    """Tell nodes apart that look alike, also after they were pickled."""
    return secrets.randbits(_INSTANCE_BITS)


@node
class MonotonicallyIncreasingIdExpr(Expr):
    """Number the rows: by the part of the dataset in the upper bits, within it in the lower 33."""

    data_type: DataType = field(init=False, default=DataType(pa.int64()))

    def own_key(self) -> Hashable:
        """Return itself: no two are alike."""
        return ByIdentity(self)

    def structurally_equals(self, other: Any) -> bool:
        """Tell that it is not, even of itself: no result of one can stand for another."""
        return False

    def is_deterministic(self) -> bool:
        """Tell that it is not: its values depend on where the rows stand, not on what they hold."""
        return False

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Tell that every row has a number."""
        return False

    def values(self, rows: int, context: EvaluationContext) -> pa.Array:
        """Return the numbers of the rows of a block."""
        first = (context.task_index << _ROWS_PER_TASK_BITS) + context.row_offset
        return pa.array(np.arange(first, first + rows, dtype=np.int64))


@node
class RandomExpr(Expr):
    """Draw a number from 0 up to, and without, 1 for each row.

    Args:
        seed: What the numbers start from; without one they are different each time.
        reseed_after_execution: Whether a seed gives other numbers when the dataset is executed again.
    """

    seed: int | None = None
    reseed_after_execution: bool = True
    _instance_id: int = field(default_factory=_instance_id, kw_only=True)
    data_type: DataType = field(init=False, default=DataType(pa.float64()))

    def own_key(self) -> Hashable:
        """Return what it was made with."""
        return (self.seed, self.reseed_after_execution)

    def is_deterministic(self) -> bool:
        """Tell that it is not, even with a seed: its values depend on where the rows stand."""
        return False

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Tell that every row has a number."""
        return False

    def values(self, rows: int, context: EvaluationContext, stream: int) -> pa.Array:
        """Return the numbers of the rows of a block; how a part is cut into blocks does not change them."""
        if self.seed is None:
            entropy = _entropy(self._instance_id, context, stream)
        else:
            execution = context.execution_index if self.reseed_after_execution else 0
            entropy = [abs(self.seed), int(self.seed < 0), execution, context.task_index]
        bits = np.random.PCG64(entropy)
        bits.advance(context.row_offset)  # one step for each number drawn
        return pa.array(np.random.Generator(bits).random(rows))


@node
class UUIDExpr(Expr):
    """Make a random UUID (version 4) for each row, as text."""

    _instance_id: int = field(default_factory=_instance_id, kw_only=True)
    data_type: DataType = field(init=False, default=DataType(pa.string()))

    def own_key(self) -> Hashable:
        """Return nothing: all are made alike."""
        return None

    def is_deterministic(self) -> bool:
        """Tell that it is not."""
        return False

    def nullable(self, input_schema: pa.Schema) -> bool:
        """Tell that every row has one."""
        return False

    def values(self, rows: int, context: EvaluationContext, stream: int) -> pa.Array:
        """Return the UUIDs of the rows of a block."""
        bits = np.random.PCG64(_entropy(self._instance_id, context, stream))
        bits.advance(2 * context.row_offset)  # two steps of 64 bits for each
        raw = bits.random_raw(2 * rows).reshape(rows, 2)
        return _uuid_text(raw.astype(">u8").view(np.uint8).reshape(rows, 16))


@node
class DownloadExpr(Expr):
    """Read what the URIs in a column name.

    Args:
        uri_column_name: The column.
        filesystem: Where to read from, if the URIs do not say.
        _source: What computes the URIs; the column, unless a planner has put something in its place.
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
        """What computes the URIs."""
        return ColumnExpr(self.uri_column_name) if self._source is None else self._source

    def children(self) -> tuple[Expr, ...]:
        """Return what computes the URIs."""
        return (self.source,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return what other URIs name."""
        (source,) = children
        return DownloadExpr(self.uri_column_name, self.filesystem, _source=source)

    def own_key(self) -> Hashable:
        """Return the column and where to read from."""
        return (self.uri_column_name, ByIdentity(self.filesystem))


def _entropy(instance_id: int, context: EvaluationContext, stream: int) -> list[int]:
    seed = secrets.randbits(128) if context.seed is None else context.seed
    return [seed, context.execution_index, context.task_index, instance_id, stream]


def _uuid_text(octets: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    """Write 16 random bytes in each row as UUIDs, without an object for each."""
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
        found: Iterator[bytes | None] = pool.map(_download_one, names, repeat(filesystem), repeat(failures))
        values = list(found)
    if failures:
        uri, error = failures[0]
        _logger.warning(
            "%d of %d downloads failed, and are null: %r: %s", len(failures), len(names), uri, error
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
    # As it is: what is stored compressed is a download of compressed bytes.
    with source.open_input_stream(path, compression=None) as stream:
        return stream.readall()  # type: ignore[no-any-return]  # pyarrow has no types
