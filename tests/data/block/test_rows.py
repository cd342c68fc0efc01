from __future__ import annotations

import datetime as dt
import decimal
import pickle
from collections import UserDict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skate.data._block import objects, rows, tensors, values
from skate.data._block.errors import BatchTypeError, MixedTypesError

NANOSECONDS = pa.array([1, None], pa.timestamp("ns"))
COLUMNS = {
    "int": pa.array([1, None, -3], pa.int16()),
    "uint": pa.array([2**63, None], pa.uint64()),
    "float": pa.array([1.5, None, float("inf")]),
    "half": pa.array([1.5, None], pa.float16()),
    "bool": pa.array([True, None, False]),
    "string": pa.array(["a", None, ""]),
    "large string": pa.array(["a", None, ""], pa.large_string()),
    "string view": pa.array(["a", None, "longer than twelve bytes"], pa.string_view()),
    "bytes": pa.array([b"a\x00", None]),
    "null": pa.nulls(2),
    "seconds": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("s")),
    "microseconds": pa.array([dt.datetime(2024, 1, 1, microsecond=3), None]),
    "nanoseconds": NANOSECONDS,
    "zone": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", tz="Europe/Berlin")),
    "date": pa.array([dt.date(2024, 1, 1), None]),
    "time": pa.array([dt.time(1, 2, 3), None]),
    "duration": pa.array([dt.timedelta(1, 2, 3), None]),
    "decimal": pa.array([decimal.Decimal("1.50"), None]),
    "list": pa.array([[1, None], None, [], [3]]),
    "list of lists": pa.array([[["a"], None], None, [[]]]),
    "large list": pa.array([[1], None], pa.large_list(pa.int8())),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
    "struct without fields": pa.array([{}, None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_values_are_those_of_pyarrow(column: pa.Array) -> None:
    assert values.to_list(column) == column.to_pylist()
    if pa.types.is_string_view(column.type):
        return  # there is no kernel that drops its nulls
    valid = column.drop_null()
    assert values.to_list(valid) == valid.to_pylist()
    assert list(map(type, values.to_list(valid))) == list(map(type, valid.to_pylist()))


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_values_of_slices_and_chunks_are_those_of_pyarrow(column: pa.Array) -> None:
    assert values.to_list(column.slice(1)) == column.slice(1).to_pylist()
    assert values.to_list(column.slice(0, 0)) == []
    chunked = pa.chunked_array([column, column.slice(1)])
    assert values.to_list(chunked) == chunked.to_pylist()


def test_rows_are_dicts_with_the_columns_in_order() -> None:
    block = pa.table({"b": [1, 2], "a": ["x", None]})
    made = list(rows.to_rows(block))
    assert made == [{"b": 1, "a": "x"}, {"b": 2, "a": None}]
    assert list(made[0]) == ["b", "a"]
    assert type(made[0]) is dict


def test_every_row_of_a_large_block_comes_once() -> None:
    block = pa.table({"id": range(10_000)})
    assert [row["id"] for row in rows.to_rows(block)] == list(range(10_000))


@pytest.mark.parametrize("width", [1, 2, 64, 65, 300])
def test_rows_may_have_any_number_of_columns(width: int) -> None:
    row = {f"column {i}": i for i in range(width)}
    assert rows.to_row_list(rows.to_block([row, row])) == [row, row]


def test_rows_without_columns_are_counted() -> None:
    block = rows.to_block([{}, {}])
    assert block.num_rows == 2
    assert list(rows.to_rows(block)) == [{}, {}]
    assert rows.to_block([]).num_rows == 0


def test_tensors_are_ndarrays_in_rows() -> None:
    block = rows.to_block([{"x": np.ones((2, 2)), "y": np.ones(1)}, {"x": np.zeros((2, 2)), "y": np.ones(2)}])
    first, second = rows.to_rows(block)
    assert first["x"].shape == (2, 2)
    assert second["y"].tolist() == [1, 1]


def test_rows_may_lack_keys_that_others_have() -> None:
    block = rows.to_block([{"a": 1}, {"b": "x"}, {"c": np.ones(2), "a": 2}])
    assert block.column_names == ["a", "b", "c"]
    made = list(rows.to_rows(block))
    assert [row["a"] for row in made] == [1, None, 2]
    assert made[0]["c"] is None


def test_rows_may_name_their_columns_in_any_order() -> None:
    assert rows.to_block([{"a": 1, "b": 2}, {"b": 3, "a": 4}]).to_pydict() == {"a": [1, 4], "b": [2, 3]}


def test_numpy_scalars_keep_their_types() -> None:
    block = rows.to_block([{"x": np.int8(1), "y": np.float32(0.5), "z": np.str_("a"), "w": np.bool_(True)}])
    assert block.schema.types == [pa.int8(), pa.float32(), pa.string(), pa.bool_()]


def test_a_mapping_that_is_no_dict_is_a_row() -> None:
    assert rows.to_block([UserDict({"x": 1}), {"x": 2}]).to_pydict() == {"x": [1, 2]}


@pytest.mark.parametrize("row", [5, None, "text", [("x", 1)], np.ones(3)])
def test_what_is_no_row_is_named_with_its_number(row: Any) -> None:
    with pytest.raises(BatchTypeError, match=f"row 1 is of type {type(row).__name__}, .* a dict") as caught:
        rows.to_block([{"x": 1}, row])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_column_name_is_a_string() -> None:
    with pytest.raises(BatchTypeError, match="column name 1 is of type int"):
        rows.to_block([{1: 2}])


def test_mixed_types_are_named_with_their_first_rows() -> None:
    with pytest.raises(MixedTypesError, match=r"column 'x' mixes int .*row 0.* str .*row 3"):
        rows.to_block([{"x": 1}, {"x": 2}, {}, {"x": "three"}])


def test_objects_come_back_in_rows() -> None:
    block = rows.to_block([{"x": 1j}, {"x": None}])
    assert isinstance(block["x"].type, objects.PythonObjectType)
    assert list(rows.to_rows(block)) == [{"x": 1j}, {"x": None}]


def test_missing_tensors_are_none_in_rows() -> None:
    block = pa.table({"x": tensors.from_ndarrays([np.ones(2), None])})
    assert [row["x"] is None for row in rows.to_rows(block)] == [False, True]


@pytest.mark.parametrize(
    "given",
    [
        [{"x": (1, 2)}, {"x": None}],
        [{"x": np.int32(3)}, {"x": 4}],
        [{"x": 1}, {"x": 0.5}],
        [{"x": np.array(3)}],
        [{"x": {"a": (1,)}}],
        [{"x": 1, "y": (2,)}, {"x": None, "y": (3,)}],
        [{"x": 1}, {"y": 2}],
        [{"x": 1}, {"x": 1, "y": 2}],
        [UserDict(x=1)],
        [{}, {}],
        [{"x": 2**70}],
        [{"x": np.str_("text")}],
        [],
    ],
)
def test_rows_look_as_if_they_had_been_in_a_block(given: list[Any]) -> None:
    found = rows.normalize(given)
    through = rows.to_row_list(rows.to_block(given))
    assert found == through
    assert [[type(value) for value in row.values()] for row in found] == [
        [type(value) for value in row.values()] for row in through
    ]


def test_plain_rows_are_passed_on_and_others_are_not_changed_in_place() -> None:
    plain = [{"x": 1, "y": "a"}, {"x": None, "y": "b"}]
    assert rows.normalize(plain) is plain
    pairs = [{"x": 1, "y": (1, 2)}]
    assert rows.normalize(pairs) == [{"x": 1, "y": [1, 2]}]
    assert pairs == [{"x": 1, "y": (1, 2)}]
