from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from skate.data._block import objects
from skate.data._block.objects import PythonObjectType
from skate.data._io import pickled_columns
from tests.data.block.test_tensors import through_ipc, through_parquet, through_pickle


@dataclass
class Point:
    x: int


def test_objects_come_back_as_they_were() -> None:
    column = objects.from_objects([Point(1), None, {"any": [Point(2)]}, 1j])
    assert column.to_pylist() == [Point(1), None, {"any": [Point(2)]}, 1j]
    assert column[0].as_py() == Point(1)
    assert column[1].as_py() is None


def test_a_slice_of_objects_holds_its_rows_alone() -> None:
    column = objects.from_objects([Point(i) for i in range(5)])
    assert column.slice(2, 2).to_pylist() == [Point(2), Point(3)]


def test_the_type_is_equal_to_itself_everywhere() -> None:
    assert pickle.loads(pickle.dumps(PythonObjectType())) == PythonObjectType()
    assert hash(PythonObjectType()) == hash(PythonObjectType())


@pytest.mark.parametrize("items", [[Point(1), None], [None], []])
def test_object_columns_survive_a_pickle(items: list[Any]) -> None:
    back = through_pickle(pa.table({"x": objects.from_objects(items)}))
    assert back.schema.field("x").type == PythonObjectType()
    assert back["x"].to_pylist() == items


@pytest.mark.parametrize("transport", [through_ipc, through_parquet])
def test_pyarrow_reads_object_columns_as_bytes(by_reference: None, transport: Any) -> None:
    table = pa.table({"x": objects.from_objects([Point(1), None])})
    back = transport(table)
    assert back["x"].to_pylist() == [pickle.dumps(Point(1), 5), None]
    assert pickled_columns.restore_objects(back, trusted=True)["x"].to_pylist() == [Point(1), None]
