"""The number formats of tensors in GGUF files, and their conversion to float32.

A quantized tensor is a sequence of blocks. A block stores 32 or 256 values as small integers, and a scale for each
group of values: value = scale × integer − offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # Integers [blocks, groups, values], scales [blocks, groups], and offsets [blocks, groups] to subtract.
    Unpacked = tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32] | None]
    Bytes = NDArray[np.uint8]

CHUNK_VALUES = 1 << 16  # values converted at a time, so that intermediate results stay in the CPU's cache


@dataclass(frozen=True, slots=True)
class QuantType:
    """A number format: the size of its blocks, and how they are unpacked."""

    name: str
    block_values: int
    block_bytes: int
    unpack: Callable[[Bytes], Unpacked] | None = None  # None: plain numbers

    def dequantize(self, data: Bytes) -> NDArray[np.float32]:
        """Return the values of whole blocks as a new flat float32 array."""
        import numpy as np

        if self.unpack is None:
            return _plain(self.name, data)
        blocks = data.reshape(-1, self.block_bytes)
        result = np.empty((len(blocks), self.block_values), np.float32)
        step = CHUNK_VALUES // self.block_values
        for start in range(0, len(blocks), step):
            integers, scales, offsets = self.unpack(blocks[start : start + step])
            values = result[start : start + step].reshape(integers.shape)
            values[...] = integers
            values *= scales[..., None]
            if offsets is not None:
                values -= offsets[..., None]
        return result.reshape(-1)


def _plain(name: str, data: Bytes) -> NDArray[np.float32]:
    import numpy as np

    if name == "BF16":  # the upper half of a float32
        return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return data.view({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[name]).astype(np.float32)


def _half(data: Bytes) -> NDArray[np.float32]:
    """Read one float16 number from each block."""
    import numpy as np

    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _nibbles(data: Bytes) -> Bytes:
    """Split the bytes of the last dimension into low and high halves, along a new dimension before it."""
    import numpy as np

    halves = np.empty((*data.shape[:-1], 2, data.shape[-1]), np.uint8)
    np.bitwise_and(data, 15, out=halves[..., 0, :])
    np.right_shift(data, 4, out=halves[..., 1, :])
    return halves


def _flat(integers: NDArray[Any]) -> NDArray[Any]:
    return integers.reshape(len(integers), 1, -1)


def _fifth_bits(data: Bytes) -> Bytes:
    """Return bit 4 of 32 values, whose bits are packed into four bytes."""
    import numpy as np

    return np.left_shift(np.unpackbits(data, axis=-1, bitorder="little"), np.uint8(4)).reshape(-1, 1, 32)


def _q4_0(blocks: Bytes) -> Unpacked:
    import numpy as np

    return _flat(_nibbles(blocks[:, 2:])).view(np.int8) - np.int8(8), _half(blocks[:, :2]), None


def _q4_1(blocks: Bytes) -> Unpacked:
    return _flat(_nibbles(blocks[:, 4:])), _half(blocks[:, :2]), -_half(blocks[:, 2:4])


def _q5_0(blocks: Bytes) -> Unpacked:
    import numpy as np

    integers = _flat(_nibbles(blocks[:, 6:])) | _fifth_bits(blocks[:, 2:6])
    return integers.view(np.int8) - np.int8(16), _half(blocks[:, :2]), None


def _q5_1(blocks: Bytes) -> Unpacked:
    integers = _flat(_nibbles(blocks[:, 8:])) | _fifth_bits(blocks[:, 4:8])
    return integers, _half(blocks[:, :2]), -_half(blocks[:, 2:4])


def _q8_0(blocks: Bytes) -> Unpacked:
    import numpy as np

    return blocks[:, None, 2:].view(np.int8), _half(blocks[:, :2]), None


def _q2_k(blocks: Bytes) -> Unpacked:
    scales, pairs = blocks[:, :16], blocks[:, 16:80]
    return (
        _bit_pairs(pairs).reshape(-1, 16, 16),
        _half(blocks[:, 80:82]) * (scales & 15),
        _half(blocks[:, 82:84]) * (scales >> 4),
    )


def _bit_pairs(data: Bytes) -> Bytes:
    """Return the bit pairs of 64 bytes: pairs 0 to 3 of the first 32 bytes, then pairs 0 to 3 of the others."""
    import numpy as np

    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return (data.reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3)


def _q3_k(blocks: Bytes) -> Unpacked:
    import numpy as np

    high = np.unpackbits(blocks[:, None, :32], axis=1, bitorder="little", count=8)  # [blocks, 8, 32]
    integers = _bit_pairs(blocks[:, 32:96]).reshape(-1, 8, 32).view(np.int8) - ((high ^ 1) << 2).view(np.int8)
    packed = blocks[:, 96:108]
    low = _nibbles(packed[:, :8]).reshape(-1, 16)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    upper = ((packed[:, None, 8:] >> shifts) & np.uint8(3)).reshape(-1, 16)
    scales = (low | upper << 4).view(np.int8) - np.int8(32)
    return integers.reshape(-1, 16, 16), _half(blocks[:, 108:110]) * scales, None


def _scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Unpack eight scales and eight minima of six bits each from twelve bytes."""
    import numpy as np

    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, rest & 15 | (first >> 6) << 4], axis=1)
    minima = np.concatenate([second & 63, rest >> 4 | (second >> 6) << 4], axis=1)
    return scales, minima


def _q4_k(blocks: Bytes) -> Unpacked:
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    integers = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return integers, _half(blocks[:, :2]) * scales, _half(blocks[:, 2:4]) * minima


def _q5_k(blocks: Bytes) -> Unpacked:
    import numpy as np

    scales, minima = _scales_and_minima(blocks[:, 4:16])
    high = np.unpackbits(blocks[:, None, 16:48], axis=1, bitorder="little", count=8)
    integers = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | high << 4
    return integers, _half(blocks[:, :2]) * scales, _half(blocks[:, 2:4]) * minima


def _q6_k(blocks: Bytes) -> Unpacked:
    import numpy as np

    low = blocks[:, :128].reshape(-1, 2, 64)
    integers = _nibbles(low).reshape(-1, 2, 4, 32) | _bit_pairs(blocks[:, 128:192]) << 4
    scales = blocks[:, 192:208].view(np.int8)
    return (
        integers.reshape(-1, 16, 16).view(np.int8) - np.int8(32),
        _half(blocks[:, 208:210]) * scales,
        None,
    )


# The formats by their number in a GGUF file.
QUANT_TYPES = {
    0: QuantType("F32", 1, 4),
    1: QuantType("F16", 1, 2),
    2: QuantType("Q4_0", 32, 18, _q4_0),
    3: QuantType("Q4_1", 32, 20, _q4_1),
    6: QuantType("Q5_0", 32, 22, _q5_0),
    7: QuantType("Q5_1", 32, 24, _q5_1),
    8: QuantType("Q8_0", 32, 34, _q8_0),
    10: QuantType("Q2_K", 256, 84, _q2_k),
    11: QuantType("Q3_K", 256, 110, _q3_k),
    12: QuantType("Q4_K", 256, 144, _q4_k),
    13: QuantType("Q5_K", 256, 176, _q5_k),
    14: QuantType("Q6_K", 256, 210, _q6_k),
    28: QuantType("F64", 1, 8),
    30: QuantType("BF16", 1, 2),
}
