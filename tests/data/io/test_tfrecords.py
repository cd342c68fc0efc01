from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skate.data._block import tensors
from skate.data._io.tfrecords import TFRecordDatasink, TFRecordDatasource
from skate.data.exceptions import FileReadError
from tests.data.io.support import read, read_rows, write

# What TensorFlow writes for {"a": [1]} as one tf.train.Example.
EXAMPLE = bytes.fromhex("0a0c0a0a0a01611205" + "1a030a0101")


def schema(**kinds: int) -> Any:
    return SimpleNamespace(feature=[SimpleNamespace(name=name, type=kind) for name, kind in kinds.items()])


def test_rows_come_back(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": [1, 2],
            "f": pa.array([0.5, None], pa.float32()),
            "b": [b"x", b"y"],
            "li": [[1, 2], []],
            "lb": [[b"x"], [b"y", b"z"]],
        }
    )
    write(TFRecordDatasink(tmp_path), table)
    assert read(TFRecordDatasource(tmp_path)).select(table.column_names).to_pylist() == table.to_pylist()


def test_text_is_written_as_bytes_and_tensors_flat(tmp_path: Path) -> None:
    table = pa.table({"s": ["grün"], "t": tensors.from_ndarray(np.arange(4).reshape(1, 2, 2)), "x": [True]})
    write(TFRecordDatasink(tmp_path), table)
    assert read_rows(TFRecordDatasource(tmp_path)) == [{"s": "grün".encode(), "t": [0, 1, 2, 3], "x": 1}]


def test_the_bytes_are_those_that_tensorflow_reads(tmp_path: Path) -> None:
    write(TFRecordDatasink(tmp_path), pa.table({"a": [1]}))
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert data[:8] == struct.pack("<Q", len(EXAMPLE))
    assert data[12:-4] == EXAMPLE
    # The masked CRC-32C of the eight bytes of this length, as TensorFlow computes it.
    assert data[8:12] == masked_crc32c(data[:8])
    assert data[-4:] == masked_crc32c(EXAMPLE)


def masked_crc32c(data: bytes) -> bytes:
    """Compute the checksum bit by bit, after its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def test_with_a_schema_all_features_are_lists(tmp_path: Path) -> None:
    write(TFRecordDatasink(tmp_path), pa.table({"i": [1], "b": [b"x"]}))
    assert read_rows(TFRecordDatasource(tmp_path, tf_schema=schema(i=2, b=1))) == [{"i": [1], "b": [b"x"]}]


def test_a_schema_that_says_something_else_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"b": [b"x"]})
    with pytest.raises(ValueError, match=r"holds bytes, and the schema says int"):
        write(TFRecordDatasink(tmp_path, tf_schema=schema(b=2)), table)
    with pytest.raises(ValueError, match=r"Found extra unexpected feature 'b'"):
        write(TFRecordDatasink(tmp_path, tf_schema=schema(c=1)), table)
    write(TFRecordDatasink(tmp_path), table)
    with pytest.raises(ValueError, match=r"holds bytes, and the schema says int"):
        read(TFRecordDatasource(tmp_path, tf_schema=schema(b=2)))
    with pytest.raises(ValueError, match=r"Found extra unexpected feature 'b'"):
        read(TFRecordDatasource(tmp_path, tf_schema=schema(c=1)))


@pytest.mark.parametrize("column", [pa.nulls(1), pa.array([{"a": 1}]), pa.array([0], pa.timestamp("s"))])
def test_a_column_that_no_feature_can_hold_is_an_error_that_names_it(
    tmp_path: Path, column: pa.Array
) -> None:
    with pytest.raises(ValueError, match=r"'x' of type"):
        write(TFRecordDatasink(tmp_path), pa.table({"x": column}))


@pytest.mark.parametrize("damage", ["short head", "short body", "length", "body", "another format"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    write(TFRecordDatasink(tmp_path), pa.table({"x": [1]}))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "length":
        data[0] ^= 1
    elif damage == "body":
        data[-6] ^= 1
    cut = {
        "short head": data[:7],
        "short body": data[:-9],
        "another format": b'{"number": 0, "string": "foo"}',
    }
    path.write_bytes(bytes(cut.get(damage, data)))
    with pytest.raises(FileReadError, match=rf"Failed to read TFRecord file {path}") as caught:
        read(TFRecordDatasource(tmp_path))
    assert isinstance(caught.value, RuntimeError)


def test_features_that_only_some_examples_have_are_null_elsewhere(tmp_path: Path) -> None:
    write(TFRecordDatasink(tmp_path / "1"), pa.table({"a": [1]}))
    write(TFRecordDatasink(tmp_path / "2"), pa.table({"b": [2]}))
    both = b"".join(path.read_bytes() for folder in "12" for path in (tmp_path / folder).iterdir())
    (tmp_path / "both").write_bytes(both)
    assert read_rows(TFRecordDatasource(tmp_path / "both")) == [{"a": 1, "b": None}, {"a": None, "b": 2}]
