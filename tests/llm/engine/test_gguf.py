from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from skate.llm._engine.gguf import GGUFFile
from tests.llm.engine import gguf_files
from tests.llm.engine.gguf_files import gguf, header, string, tensor_info

np: Any = pytest.importorskip("numpy")


def test_metadata_of_every_type_is_read(tmp_path: Path) -> None:
    values = {
        "a.bool": True,
        "a.int": 7,
        "a.float": 0.5,
        "a.text": "naïve 🤖",
        "a.texts": ["x", "", "日本"],
        "a.numbers": [1, -2, 3],
        "a.flags": [True, False],
        "a.nested": [[1, 2], [3]],
    }
    file = GGUFFile(gguf_files.write(tmp_path / "m.gguf", "llama", values, {}))
    assert {key: file.metadata[key] for key in values} == values
    assert file.metadata["general.architecture"] == "llama"


def test_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(0, 1, version=2) + string("k") + struct.pack("<Iq", 11, -5))
    assert GGUFFile(path).metadata == {"k": -5}


def test_tensors_have_their_shape_and_values(tmp_path: Path) -> None:
    matrix = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    vector = np.arange(5, dtype=np.float16)
    file = GGUFFile(gguf_files.write(tmp_path / "m.gguf", "llama", {}, {"matrix": matrix, "vector": vector}))
    assert list(file.tensors) == ["matrix", "vector"]
    assert file.tensors["matrix"].shape == (2, 3, 4)
    assert np.array_equal(file.read("matrix"), matrix)
    assert np.array_equal(file.read("vector"), vector.astype(np.float32))


def test_a_list_of_strings_that_are_not_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        header(0, 1) + string("tokens") + struct.pack("<IIQ", 9, 8, 2) + string(b"\xff") + string("b")
    )
    assert GGUFFile(path).metadata == {"tokens": ["\ufffd", "b"]}


HUGE = 2**63
HOSTILE = {
    "empty": b"",
    "foreign": b"PK\x03\x04" + bytes(100),
    "version 1": header(version=1) + bytes(8),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(8),
    "many tensors": header(tensors=HUGE) + bytes(64),
    "many entries": header(entries=HUGE) + bytes(64),
    "long key": header(entries=1) + struct.pack("<Q", HUGE) + bytes(64),
    "key that is not UTF-8": header(entries=1) + string(b"\xff\xfe") + bytes(64),
    "unknown value type": header(entries=1) + string("k") + struct.pack("<I", 99) + bytes(64),
    "long array": header(entries=1) + string("k") + struct.pack("<IIQ", 9, 4, HUGE) + bytes(64),
    "long list of strings": header(entries=1) + string("k") + struct.pack("<IIQ", 9, 8, HUGE) + bytes(64),
    "long string in a list": (
        header(entries=1) + string("k") + struct.pack("<IIQ", 9, 8, 2) + struct.pack("<Q", HUGE) + bytes(64)
    ),
    "long last string in a list": (
        header(entries=1) + string("k") + struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", HUGE) + bytes(64)
    ),
    "nested arrays": header(entries=1) + string("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 500,
    "zero alignment": (
        header(1, 1) + string("general.alignment") + struct.pack("<II", 4, 0) + tensor_info("t", (1,), 0, 0)
    ),
    "truncated info": header(tensors=1) + tensor_info("t", (4,), 0, 0)[:-4],
    "many dimensions": header(tensors=1) + tensor_info("t", (1,) * 9, 0, 0) + bytes(64),
    "large shape": header(tensors=1) + tensor_info("t", (HUGE, HUGE), 0, 0) + bytes(64),
    "offset beyond the file": header(tensors=1) + tensor_info("t", (4,), 0, HUGE) + bytes(64),
    "truncated data": header(tensors=1) + tensor_info("t", (64,), 0, 0) + bytes(64),
    "part of a block": header(tensors=1) + tensor_info("t", (33,), 8, 0) + bytes(64),
    "unknown tensor type": header(tensors=1) + tensor_info("t", (4,), 4711, 0) + bytes(64),
    "a tensor twice": header(tensors=2) + tensor_info("t", (4,), 0, 0) * 2 + bytes(64),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_broken_file_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"broken\.gguf"):
        GGUFFile(path)


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    values = {"a.texts": ["x", "yz"], "a.int": 1}
    whole = gguf_files.write(tmp_path / "m.gguf", "llama", values, {"t": np.ones(8, np.float32)})
    data = whole.read_bytes()
    end = GGUFFile(whole).tensors["t"].offset + 32
    cut = tmp_path / "cut.gguf"
    for length in range(end):
        cut.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"cut\.gguf"):
            GGUFFile(cut)


def test_a_real_file_is_read() -> None:
    path = gguf_files.smollm2()
    file = GGUFFile(path)
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["llama.block_count"] == 30
    tokens = file.metadata["tokenizer.ggml.tokens"]
    assert len(tokens) == 49152
    assert tokens[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(file.tensors) == 272
    norm = file.read("output_norm.weight")
    assert norm.shape == (576,)
    assert np.isfinite(norm).all()
    # One tensor of each type, from the bytes at the offset that the file claims.
    for name in ("token_embd.weight", "blk.29.ffn_down.weight"):
        tensor = file.tensors[name]
        raw = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.nbytes,))
        row = tensor.shape[-1] // tensor.type.block_values * tensor.type.block_bytes
        want = gguf.quants.dequantize(raw[: row * 8], gguf.GGMLQuantizationType[tensor.type.name])
        assert np.array_equal(file.read(name)[:8].reshape(-1), want)
