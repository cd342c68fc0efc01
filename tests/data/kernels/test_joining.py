from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data._kernels import joining
from skate.data._kernels.joining import JoinKind
from tests.data.kernels.support import KEY_VALUES, NAN, column, identity, key_rows

KINDS: tuple[JoinKind, ...] = get_args(JoinKind)


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    kinds = [draw(st.sampled_from(list(KEY_VALUES))) for _ in range(2)]
    sides = []
    for side in ("left", "right"):
        rows = draw(st.integers(0, 8))
        columns = {}
        for i, kind in enumerate(kinds):
            values = st.lists(st.sampled_from(KEY_VALUES[kind][1]), min_size=rows, max_size=rows)
            columns[f"k{i}"] = column(kind, draw(values))
        columns[side] = pa.array(range(rows), pa.int64())
        columns[f"{side} items"] = pa.array([[i] for i in range(rows)], pa.list_(pa.int64()))
        sides.append(pa.table(columns))
    return sides[0], sides[1]


def expected_pairs(left: pa.Table, right: pa.Table, how: JoinKind) -> set[tuple[int | None, int | None]]:
    keys = ["k0", "k1"]
    pairs: set[tuple[int | None, int | None]] = set()
    for i, mine in enumerate(key_rows(left, keys)):
        for j, its in enumerate(key_rows(right, keys)):
            if None not in mine and identity(mine) == identity(its):
                pairs.add((i, j))
    lefts, rights = {i for i, _ in pairs}, {j for _, j in pairs}
    lonely_left: set[tuple[int | None, int | None]] = {
        (i, None) for i in range(left.num_rows) if i not in lefts
    }
    lonely_right: set[tuple[int | None, int | None]] = {
        (None, j) for j in range(right.num_rows) if j not in rights
    }
    expected: dict[JoinKind, set[tuple[int | None, int | None]]] = {
        "inner": pairs,
        "left_outer": pairs | lonely_left,
        "right_outer": pairs | lonely_right,
        "full_outer": pairs | lonely_left | lonely_right,
        "left_semi": {(i, None) for i in lefts},
        "right_semi": {(None, j) for j in rights},
        "left_anti": lonely_left,
        "right_anti": lonely_right,
    }
    return expected[how]


@settings(deadline=None)
@given(two_sides(), st.sampled_from(KINDS))
def test_joins_give_the_pairs_that_nested_loops_find(sides: tuple[pa.Table, pa.Table], how: JoinKind) -> None:
    left, right = sides
    joined = joining.join(left, right, how, ["k0", "k1"])
    joined.validate(full=True)
    rows = joined.to_pylist()
    pairs = [(row.get("left"), row.get("right")) for row in rows]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected_pairs(left, right, how)
    left_keys, right_keys = key_rows(left, ["k0", "k1"]), key_rows(right, ["k0", "k1"])
    for row, (i, j) in zip(rows, pairs, strict=True):
        source = left_keys[i] if i is not None else right_keys[j or 0]
        assert identity((row["k0"], row["k1"])) == identity(source)
        assert row.get("left items") == (None if i is None else [i])
        assert row.get("right items") == (None if j is None else [j])


@pytest.mark.parametrize("how", KINDS)
def test_columns_keep_their_types(how: JoinKind) -> None:
    image = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2, 2), np.float32))
    left = pa.table({"k": pa.array([1], pa.int32()), "image": image})
    right = pa.table({"k": pa.array([1], pa.int32()), "word": pa.array(["a"])})
    joined = joining.join(left, right, how, ["k"])
    for name, kind in zip(joined.schema.names, joined.schema.types, strict=True):
        assert kind == (left if name in left.column_names else right).schema.field(name).type


def test_a_null_key_equals_nothing() -> None:
    left, right = pa.table({"k": [None, 1], "a": [1, 2]}), pa.table({"k": [None, 1], "b": [3, 4]})
    assert joining.join(left, right, "inner", ["k"]).to_pylist() == [{"k": 1, "a": 2, "b": 4}]
    assert joining.join(left, right, "left_anti", ["k"]).to_pylist() == [{"k": None, "a": 1}]
    assert joining.join(left, right, "full_outer", ["k"]).num_rows == 3


def test_nan_equals_nan_and_zero_equals_minus_zero() -> None:
    left, right = pa.table({"k": [NAN, 0.0]}), pa.table({"k": [-0.0, NAN], "b": [1, 2]})
    rows = joining.join(left, right, "inner", ["k"]).to_pylist()
    assert [row["b"] for row in rows] == [2, 1]
    assert math.isnan(rows[0]["k"])


def test_keys_under_other_names_come_once_under_the_left_name() -> None:
    left, right = pa.table({"id": [1, 2], "a": [1, 2]}), pa.table({"other": [2, 3], "b": [1, 2]})
    joined = joining.join(left, right, "full_outer", ["id"], ["other"])
    assert joined.to_pydict() == {"id": [1, 2, 3], "a": [1, 2, None], "b": [None, 1, 2]}


def test_keys_of_two_types_are_compared_by_value() -> None:
    left, right = pa.table({"k": pa.array([1, 2], pa.int32())}), pa.table({"k": [2.0, 3.0], "b": [1, 2]})
    assert joining.join(left, right, "inner", ["k"]).to_pylist() == [{"k": 2, "b": 1}]
    assert joining.join(left, right, "right_outer", ["k"])["k"].to_pylist() == [2.0, 3.0]


def test_keys_without_a_type_match_nothing() -> None:
    left, right = pa.table({"k": pa.nulls(2)}), pa.table({"k": ["a"], "b": [1]})
    assert joining.join(left, right, "right_outer", ["k"]).to_pylist() == [{"k": "a", "b": 1}]


SUFFIXES = [
    ("_l", "_r", ["k", "x_l", "x_r"]),
    (None, "_r", ["k", "x", "x_r"]),
    ("_l", None, ["k", "x_l", "x"]),
]


@pytest.mark.parametrize(("left_suffix", "right_suffix", "names"), SUFFIXES)
def test_suffixes_tell_columns_of_the_same_name_apart(
    left_suffix: Any, right_suffix: Any, names: list[str]
) -> None:
    table = pa.table({"k": [1], "x": [2]})
    joined = joining.join(table, table, "inner", ["k"], None, left_suffix, right_suffix)
    assert joined.column_names == names
    assert list(joined.to_pylist()[0].values()) == [1, 2, 2]


def test_a_key_keeps_its_name_where_the_other_side_has_such_a_column() -> None:
    left, right = pa.table({"id": [1], "x": [2]}), pa.table({"other": [1], "id": [5]})
    joined = joining.join(left, right, "inner", ["id"], ["other"], "_l", "_r")
    assert joined.to_pylist() == [{"id": 1, "x": 2, "id_r": 5}]
    with pytest.raises(ValueError, match="keys keep their names"):
        joining.join(left, right, "inner", ["id"], ["other"], left_suffix="_l")


def test_columns_of_the_same_name_need_suffixes_unless_one_side_is_left_out() -> None:
    table = pa.table({"k": [1], "x": [2]})
    with pytest.raises(ValueError, match=r"suffixes cannot be both None.*'x'"):
        joining.join(table, table, "inner", ["k"])
    assert joining.join(table, table, "left_semi", ["k"]).equals(table)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("empty", ["left", "right", "both"])
def test_a_side_without_rows(how: JoinKind, empty: str) -> None:
    left, right = pa.table({"k": [1], "a": [2]}), pa.table({"k": [1], "b": ["x"]})
    left = left.slice(0, 0) if empty in ("left", "both") else left
    right = right.slice(0, 0) if empty in ("right", "both") else right
    expected = {"left_outer": left, "left_anti": left, "right_outer": right, "right_anti": right}.get(how)
    rows = max(left.num_rows, right.num_rows) if how == "full_outer" else expected.num_rows if expected else 0
    assert joining.join(left, right, how, ["k"]).num_rows == rows


def test_a_side_of_nothing_has_the_keys() -> None:
    some = pa.table({"k": ["a"], "x": [1]})
    assert joining.join(pa.table({}), some, "full_outer", ["key"], ["k"]).to_pylist() == [
        {"key": "a", "x": 1}
    ]
    assert joining.join(some, pa.table({}), "left_anti", ["k"]).equals(some)
    assert joining.join(pa.table({}), pa.table({}), "inner", ["k"]).num_rows == 0


def test_mistakes_are_named() -> None:
    left, right = pa.table({"k": [1], "l": [[1]]}), pa.table({"k": [1], "m": [[1]]})
    suffixes = {"left_suffix": "_l", "right_suffix": "_r"}
    with pytest.raises(ValueError, match=r"unknown join type 'outer'; use one of inner, left_outer"):
        joining.join(left, right, "outer", ["k"])  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="no column 'z' to join the left side on"):
        joining.join(left, right, "inner", ["z"], ["k"])
    with pytest.raises(ValueError, match="no column 'z' to join the right side on"):
        joining.join(left, right, "inner", ["k"], ["z"])
    with pytest.raises(ValueError, match=r"as many key columns .* \['k'\] and \['k', 'm'\]"):
        joining.join(left, right, "inner", ["k"], ["k", "m"])
    with pytest.raises(TypeError, match="cannot join on 'l', a column of type list"):
        joining.join(left, right, "inner", ["l"], ["m"], **suffixes)
