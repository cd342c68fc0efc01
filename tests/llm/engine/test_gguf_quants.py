from __future__ import annotations

from typing import Any

import pytest

from skate.llm._engine.gguf_quants import CHUNK_VALUES, QUANT_TYPES, QuantType
from tests.llm.engine.gguf_files import gguf

np: Any = pytest.importorskip("numpy")

QUANTISED = [kind for kind in QUANT_TYPES.values() if kind.unpack is not None]


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_random_blocks_equal_those_of_the_gguf_package(kind: QuantType) -> None:
    blocks = CHUNK_VALUES // kind.block_values + 3  # more than one chunk
    raw = np.random.default_rng(0).integers(0, 256, blocks * kind.block_bytes, dtype=np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):  # random scales include infinities
        want = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind.name])
        got = kind.dequantize(raw)
    assert got.dtype == np.float32
    assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "F64"])
def test_plain_numbers_are_read(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    values = torch.tensor([0.0, -1.5, 3.25, 2.0**-14, float("inf")])
    dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}[name]
    raw = values.to(getattr(torch, dtype)).view(torch.uint8).numpy()
    kind = next(each for each in QUANT_TYPES.values() if each.name == name)
    assert kind.dequantize(raw).tolist() == values.tolist()


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    for number, kind in QUANT_TYPES.items():
        assert gguf.GGMLQuantizationType(number).name == kind.name
        assert gguf.GGML_QUANT_SIZES[number] == (kind.block_values, kind.block_bytes)
