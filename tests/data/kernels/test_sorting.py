from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data._kernels import frames, sorting
from tests.data.kernels.support import NAN, assert_rows, in_order, key_rows, row_numbers, tables

directions = st.lists(st.booleans(), min_size=2, max_size=2)


@settings(deadline=None)
@given(tables(), directions)
def test_sort_orders_rows_as_a_stable_sort_in_python_does(table: pa.Table, descending: list[bool]) -> None:
    keys = ["k0", "k1"]
    expected = in_order(key_rows(table, keys), descending)
    assert_rows(sorting.sort(table, keys, descending), table, expected)


@settings(deadline=None)
@given(tables(keys=1), st.booleans())
def test_sort_by_one_key(table: pa.Table, descending: bool) -> None:
    expected = in_order(key_rows(table, ["k0"]), [descending])
    assert_rows(sorting.sort(table, ["k0"], [descending]), table, expected)


@pytest.mark.parametrize("descending", [False, True])
def test_nulls_come_last_and_nan_before_them_in_both_directions(descending: bool) -> None:
    table = pa.table({"x": [NAN, None, 1.0, 2.0]})
    ordered = sorting.sort(table, ["x"], [descending])["x"].to_pylist()
    assert ordered[:2] == ([2.0, 1.0] if descending else [1.0, 2.0])
    assert np.isnan(ordered[2])
    assert ordered[3] is None


@pytest.mark.parametrize("descending", [False, True])
def test_equal_keys_stay_in_their_order(descending: bool) -> None:
    table = pa.table({"key": [1, 0] * 50, "row": range(100)})
    rows = row_numbers(sorting.sort(table, ["key"], [descending]))
    odd, even = list(range(1, 100, 2)), list(range(0, 100, 2))
    assert rows == (even + odd if descending else odd + even)


@settings(deadline=None)
@given(tables(keys=2), directions, st.integers(1, 5), st.integers(0, 12))
def test_ranges_are_the_sorted_rows_cut_where_keys_change(
    table: pa.Table, descending: list[bool], parts: int, sampled: int
) -> None:
    keys = ["k0", "k1"]
    bounds = sorting.sample_bounds([table.slice(0, sampled), table.slice(sampled)], keys, descending, parts)
    assert bounds.num_rows < parts
    ranges = sorting.range_partition(table, keys, descending, bounds)
    assert len(ranges) == bounds.num_rows + 1
    numbers = [number for part in ranges for number in row_numbers(part)]
    assert numbers == in_order(key_rows(table, keys), descending)
    all_keys = [{str(key) for key in key_rows(part, keys)} for part in ranges]
    assert sum(map(len, all_keys)) == len(set().union(*all_keys))


@settings(deadline=None)
@given(tables(keys=1), tables(keys=1), st.booleans())
def test_merging_the_ranges_of_blocks_sorts_their_rows(
    left: pa.Table, right: pa.Table, descending: bool
) -> None:
    if left.schema != right.schema:
        right = left
    bounds = sorting.sample_bounds([left, right], ["k0"], [descending], 3)
    ranges = [sorting.range_partition(block, ["k0"], [descending], bounds) for block in (left, right)]
    merged = [sorting.merge_sorted(pair, ["k0"], [descending]) for pair in zip(*ranges, strict=True)]
    values = [str(value) for part in merged for value in part["k0"].to_pylist()]
    both = left["k0"].to_pylist() + right["k0"].to_pylist()
    order = in_order([(value,) for value in both], [descending])
    assert sorted(values) == sorted(str(both[i]) for i in order)
    assert in_order([(value,) for part in merged for value in part["k0"].to_pylist()], [descending]) == list(
        range(len(both))
    )


@pytest.mark.parametrize("descending", [False, True])
def test_a_row_at_a_bound_belongs_to_the_larger_keys(descending: bool) -> None:
    bounds = pa.table({"id": [7, 3] if descending else [3, 7]})
    parts = sorting.range_partition(pa.table({"id": range(10)}), ["id"], [descending], bounds)
    small, middle, large = [0, 1, 2], [3, 4, 5, 6], [7, 8, 9]
    expected = [large[::-1], middle[::-1], small[::-1]] if descending else [small, middle, large]
    assert [part["id"].to_pylist() for part in parts] == expected


def test_bounds_may_be_of_a_wider_type_than_the_keys() -> None:
    parts = sorting.range_partition(pa.table({"id": [1, 2, 3]}), ["id"], [False], pa.table({"id": [1.5]}))
    assert [part["id"].to_pylist() for part in parts] == [[1], [2, 3]]


def test_bounds_of_times_may_be_in_another_unit() -> None:
    times = pa.table({"t": pa.array([1, 2, 3], pa.timestamp("s"))})
    bounds = pa.table({"t": pa.array([2000], pa.timestamp("ms"))})
    assert [part.num_rows for part in sorting.range_partition(times, ["t"], [False], bounds)] == [1, 2]


@pytest.mark.parametrize("descending", [False, True])
def test_ranges_of_distinct_keys_are_equally_full(descending: bool) -> None:
    table = pa.table({"a": [i for i in range(2) for _ in range(5)], "b": [*range(5)] * 2})
    directions = [descending, not descending]
    bounds = sorting.sample_bounds([table], ["a", "b"], directions, 5)
    parts = sorting.range_partition(table, ["a", "b"], directions, bounds)
    assert [part.num_rows for part in parts] == [2] * 5


def test_equal_keys_are_never_in_two_ranges() -> None:
    table = pa.table({"k": [1] * 100})
    bounds = sorting.sample_bounds([table] * 4, ["k"], [False], 8)
    assert sorted(part.num_rows for part in sorting.range_partition(table, ["k"], [False], bounds)) == [
        0,
        100,
    ]


def test_without_samples_there_is_one_range() -> None:
    bounds = sorting.sample_bounds([pa.table({"k": pa.array([], pa.int64())})], ["k"], [False], 4)
    assert bounds.num_rows == 0
    assert sorting.range_partition(pa.table({"k": [2, 1]}), ["k"], [False], bounds)[0]["k"].to_pylist() == [
        1,
        2,
    ]


def test_samples_without_a_type_go_with_those_that_have_one() -> None:
    samples = [pa.table({"k": pa.nulls(2)}), pa.table({"k": [1, 2, 3, 4]})]
    bounds = sorting.sample_bounds(samples, ["k"], [False], 3)
    assert bounds["k"].to_pylist() == [3, None]


def test_a_block_of_nothing_is_sorted() -> None:
    nothing = pa.table({})
    assert sorting.sort(nothing, ["k"], [False]) is nothing
    assert [
        part.num_rows for part in sorting.range_partition(nothing, ["k"], [False], pa.table({"k": [1, 5]}))
    ] == [
        0,
        0,
        0,
    ]


def test_a_missing_key_is_named_with_the_columns_there_are() -> None:
    with pytest.raises(ValueError, match=r"no column 'c' to sort by; the columns are 'a', 'b'"):
        sorting.sort(pa.table({"a": [1], "b": [2]}), ["c"], [False])


def test_a_column_name_that_occurs_twice_is_no_key() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="2 columns are named 'a'"):
        sorting.sort(twice, ["a"], [False])


@pytest.mark.parametrize(
    "values", [pa.array([[1]]), pa.array([{"x": 1}]), pa.array([[("a", 1)]], pa.map_("string", "int64"))]
)
def test_nested_keys_are_refused_with_their_type(values: pa.Array) -> None:
    with pytest.raises(TypeError, match=r"cannot sort by 'x', a column of type .*no order"):
        sorting.sort(pa.table({"x": values}), ["x"], [False])


def test_strings_that_32_bit_offsets_cannot_address_together_come_in_several_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "LARGEST_OFFSET", 10)
    words = ["dddd", "cccc", None, "bbbb", "aaaa", "eeeeeeeeee"]
    lists = [[word] * 2 if word else None for word in words]
    table = pa.table({"word": words, "words": lists, "row": range(6)})
    ordered = sorting.sort(table, ["word"], [False])
    ordered.validate(full=True)
    assert ordered.schema.equals(table.schema)
    assert ordered["word"].to_pylist() == ["aaaa", "bbbb", "cccc", "dddd", "eeeeeeeeee", None]
    assert ordered["words"].to_pylist() == [[word] * 2 for word in ordered["word"].to_pylist()[:5]] + [None]
    assert ordered["word"].num_chunks > 1
    assert ordered["words"].num_chunks > 1
