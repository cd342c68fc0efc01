"""GGUF files: the metadata and tensors of a model in one file, read through a memory map."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.llm._engine.gguf_quants import QUANT_TYPES, QuantType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NESTING = 4  # of arrays in arrays, which no known file has
MIN_ENTRY_BYTES = 8  # each metadata entry and each tensor takes more

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING = 8
_ARRAY = 9
# The number of each type of metadata value, and its letter in `struct`.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor of a file: its shape, with the fastest dimension last, and the location of its data."""

    name: str
    shape: tuple[int, ...]
    type: QuantType
    offset: int  # from the start of the file
    nbytes: int


class GGUFFile:
    """The metadata and tensors of a GGUF file of version 2 or 3.

    Opening reads only the header. Tensors are read on request, as float32.

    Args:
        path: The file.

    Attributes:
        metadata: The metadata by key, for example `metadata["general.architecture"]`.
        tensors: The tensors by name.

    Raises:
        ValueError: If the file is not a GGUF file, is truncated, or has a tensor of an unknown type.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            size = self.path.stat().st_size
            if size < 24:
                raise ValueError(f"{self.path} is not a GGUF file: it has only {size} bytes")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            header = _Header(self._map, self.path)
        except BaseException:
            self._map.close()
            raise
        self.metadata: Mapping[str, Any] = header.metadata
        self.tensors: Mapping[str, GGUFTensor] = header.tensors

    def read(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as a new float32 array.

        Raises:
            KeyError: If the file has no tensor with this name.
        """
        import numpy as np

        tensor = self.tensors[name]
        data = np.frombuffer(self._map, np.uint8, tensor.nbytes, tensor.offset)
        return tensor.type.dequantize(data).reshape(tensor.shape)


class _Header:
    """Reads the header once, from start to end. Every length is checked against the size of the file first."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._size = len(data)
        self._at = 0
        if data[:4] != MAGIC:
            raise ValueError(f"{path} is not a GGUF file: it starts with {data[:4]!r} instead of {MAGIC!r}")
        self._at = 4
        version = self._number(_U32)
        if version not in VERSIONS:
            big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            why = "big-endian files are not supported" if big_endian else f"versions {VERSIONS} are supported"
            raise ValueError(f"{path} is a GGUF file of version {version}: {why}")
        tensor_count = self._count("tensors")
        entry_count = self._count("metadata entries")
        self.metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._string()
            self.metadata[key] = self._value(self._number(_U32), key)
        self.tensors = self._tensors(tensor_count)

    def _error(self, problem: str) -> ValueError:
        return ValueError(
            f"{self._path} is truncated or corrupt: {problem} (at byte {self._at} of {self._size})"
        )

    def _take(self, length: int) -> int:
        """Return the position of the next `length` bytes, and advance past them."""
        start = self._at
        if length > self._size - start:
            raise self._error(f"{length} more bytes are expected")
        self._at = start + length
        return start

    def _number(self, layout: struct.Struct) -> int:
        start = self._take(layout.size)
        return int(layout.unpack_from(self._data, start)[0])

    def _count(self, of: str, least_bytes: int = MIN_ENTRY_BYTES) -> int:
        count = self._number(_U64)
        if count * least_bytes > self._size - self._at:
            raise self._error(f"it claims {count} {of}")
        return count

    def _string(self) -> str:
        length = self._number(_U64)
        start = self._take(length)
        try:
            return self._data[start : start + length].decode()
        except UnicodeDecodeError as error:
            raise self._error(f"a string is not UTF-8: {error}") from None

    def _value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            if depth == MAX_NESTING:
                raise self._error(f"arrays of {key!r} are nested too deeply")
            return self._array(key, depth)
        if kind not in _SCALARS:
            raise self._error(f"{key!r} has the unknown type {kind}")
        layout = struct.Struct("<" + _SCALARS[kind])
        return layout.unpack_from(self._data, self._take(layout.size))[0]

    def _array(self, key: str, depth: int) -> list[Any]:
        kind = self._number(_U32)
        if kind == _STRING:
            return self._strings(self._count(f"strings in {key!r}"))
        if kind in _SCALARS:
            letter = _SCALARS[kind]
            size = struct.calcsize(letter)
            count = self._count(f"values in {key!r}", size)
            return list(struct.unpack_from(f"<{count}{letter}", self._data, self._take(count * size)))
        return [self._value(kind, key, depth + 1) for _ in range(self._count(f"values in {key!r}"))]

    def _strings(self, count: int) -> list[str]:
        """Read many strings. A vocabulary has about 10⁵, so the loop does nothing but unpack and slice."""
        data, at, size = self._data, self._at, self._size
        unpack: Callable[..., tuple[int]] = _U64.unpack_from
        raw = []
        try:
            for _ in range(count):
                (length,) = unpack(data, at)
                at += 8
                # A length beyond the end gives a short slice, which the check after the loop detects.
                raw.append(data[at : at + length])
                at += length
        except (struct.error, IndexError, OverflowError):
            raise self._error("a list of strings ends too early") from None
        if at > size:
            raise self._error("a list of strings ends too early")
        self._at = at
        try:
            return [each.decode() for each in raw]
        except UnicodeDecodeError:
            # Some vocabularies have tokens that are single bytes, which never match text.
            return [each.decode(errors="replace") for each in raw]

    def _tensors(self, count: int) -> dict[str, GGUFTensor]:
        infos: list[tuple[str, tuple[int, ...], QuantType, int]] = []
        for _ in range(count):
            name = self._string()
            dimensions = self._number(_U32)
            if dimensions > MAX_DIMENSIONS:
                raise self._error(f"tensor {name!r} has {dimensions} dimensions")
            shape = tuple(reversed([self._number(_U64) for _ in range(dimensions)]))
            kind = self._number(_U32)
            if kind not in QUANT_TYPES:
                known = ", ".join(each.name for each in QUANT_TYPES.values())
                raise ValueError(
                    f"{self._path} has tensor {name!r} of type {kind}, which is not supported. Supported types are"
                    f" {known}"
                )
            infos.append((name, shape, QUANT_TYPES[kind], self._number(_U64)))
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._error(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        for name, shape, quant, offset in infos:
            if name in tensors:
                raise self._error(f"tensor {name!r} appears twice")
            values = prod(shape)
            if (shape[-1] if shape else 1) % quant.block_values:
                raise self._error(
                    f"the row length of tensor {name!r} is not a multiple of {quant.block_values}: {shape}"
                )
            nbytes = values // quant.block_values * quant.block_bytes
            if start + offset + nbytes > self._size:
                raise self._error(f"tensor {name!r} ends at byte {start + offset + nbytes}")
            tensors[name] = GGUFTensor(name, shape, quant, start + offset, nbytes)
        return tensors
