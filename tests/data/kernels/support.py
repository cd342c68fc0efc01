"""Tables to try kernels on, and what plain Python makes of their rows."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

NAN = float("nan")

# Few different values each, so that keys repeat.
KEY_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small int": (pa.int8(), [-1, 0, 1, 127, None]),
    "int": (pa.int64(), [-(2**62), -1, 0, 1, 2**62, None]),
    "unsigned": (pa.uint64(), [0, 1, 2**64 - 1, None]),
    "float": (pa.float64(), [-1.5, -0.0, 0.0, 1.0, math.inf, NAN, None]),
    "float32": (pa.float32(), [-1.5, 0.0, 2.0, NAN, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "string": (pa.string(), ["", "a", "ab", "ü", "a string longer than twelve bytes", None]),
    "large string": (pa.large_string(), ["", "a", "z", None]),
    "bytes": (pa.binary(), [b"", b"a", b"\xff", None]),
    "date": (pa.date32(), [datetime.date(1969, 1, 1), datetime.date(2020, 2, 29), None]),
    "time": (pa.timestamp("s", "+02:00"), [-5, 0, 7, None]),
    "decimal": (pa.decimal128(6, 2), [-1, 0, 3, None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "c", None]),
    "null": (pa.null(), [None]),
}


def column(kind: str, values: Sequence[Any]) -> pa.Array:
    arrow_type = KEY_VALUES[kind][0]
    if pa.types.is_dictionary(arrow_type):
        return pa.array(values, pa.string()).dictionary_encode().cast(arrow_type)
    return pa.array(values, arrow_type)


@st.composite
def tables(
    draw: st.DrawFn, keys: int = 2, kinds: Sequence[str] = tuple(KEY_VALUES), max_rows: int = 12
) -> pa.Table:
    """Draw a table in several chunks: key columns "k0", "k1", …, and others that Polars can and cannot hold."""
    rows = draw(st.integers(0, max_rows))
    columns: dict[str, pa.Array] = {}
    for i in range(keys):
        kind = draw(st.sampled_from(list(kinds)))
        values = st.lists(st.sampled_from(KEY_VALUES[kind][1]), min_size=rows, max_size=rows)
        columns[f"k{i}"] = column(kind, draw(values))
    columns["row"] = pa.array(range(rows), pa.int64())
    columns["text"] = pa.array([f"row {i}" if i % 3 else None for i in range(rows)], pa.string())
    columns["items"] = pa.array([[i] * (i % 3) for i in range(rows)], pa.list_(pa.int64()))
    images = np.arange((rows + 1) * 4.0).reshape(-1, 2, 2)  # Arrow takes no empty array
    columns["image"] = pa.FixedShapeTensorArray.from_numpy_ndarray(images).slice(0, rows)
    whole = pa.table(columns)
    cut = draw(st.integers(0, rows))
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def comparable(value: Any) -> tuple[int, Any]:
    """Return what a value is ordered by, ascending: values, then NaN, then null."""
    if value is None:
        return 2, 0
    if isinstance(value, float) and math.isnan(value):
        return 1, 0
    return 0, value


def in_order(rows: Sequence[tuple[Any, ...]], descending: Sequence[bool]) -> list[int]:
    """Return the positions of rows of keys, as a stable sort puts them."""

    def compare(left: int, right: int) -> int:
        for mine, its, falls in zip(rows[left], rows[right], descending, strict=True):
            (class_mine, mine), (class_its, its) = comparable(mine), comparable(its)
            if class_mine != class_its:
                return -1 if class_mine < class_its else 1
            if mine != its:
                return -1 if (mine > its) == falls else 1
        return 0

    return sorted(range(len(rows)), key=cmp_to_key(compare))


def key_rows(table: pa.Table, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in keys), strict=True))


def identity(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return something that is equal for equal keys, NaN and NaN among them."""
    return tuple(map(comparable, key))


def row_numbers(table: pa.Table) -> list[int]:
    numbers: list[int] = table.column("row").to_pylist()
    return numbers


def assert_rows(table: pa.Table, source: pa.Table, numbers: Sequence[int]) -> None:
    """Check that a table has these rows of the source, in order, all columns alike, and exactly its schema."""
    table.validate(full=True)
    assert table.schema.equals(source.schema)
    assert row_numbers(table) == list(numbers)
    rows = source.select(["text", "items"]).to_pylist()
    assert table.select(["text", "items"]).to_pylist() == [rows[number] for number in numbers]
    images = [image.tolist() for image in _images(source)]
    assert [image.tolist() for image in _images(table)] == [images[number] for number in numbers]


def _images(table: pa.Table) -> list[Any]:
    return [
        image for chunk in table.column("image").chunks if len(chunk) for image in chunk.to_numpy_ndarray()
    ]
