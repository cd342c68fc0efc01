from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data._kernels import partitioning
from tests.data.kernels.support import NAN, assert_rows, identity, key_rows, row_numbers, tables


@settings(deadline=None)
@given(tables(), st.integers(1, 5), st.integers(0, 3))
def test_rows_with_equal_keys_are_in_one_part_and_all_rows_are_in_some(
    table: pa.Table, parts: int, seed: int
) -> None:
    keys = ["k0", "k1"]
    split = partitioning.hash_partition(table, keys, parts, seed)
    assert len(split) == parts
    part_of: dict[Any, int] = {}
    for number, part in enumerate(split):
        assert_rows(part, table, row_numbers(part))
        assert row_numbers(part) == sorted(row_numbers(part))
        for key in key_rows(part, keys):
            assert part_of.setdefault(identity(key), number) == number
    assert sorted(row for part in split for row in row_numbers(part)) == list(range(table.num_rows))


@settings(deadline=None)
@given(tables(), st.integers(1, 300), st.integers(0, 3))
def test_random_parts_have_every_row_once(table: pa.Table, parts: int, seed: int) -> None:
    split = partitioning.random_partition(table, parts, seed)
    assert len(split) == parts
    for part in split:
        assert_rows(part, table, row_numbers(part))
    assert sorted(row for part in split for row in row_numbers(part)) == list(range(table.num_rows))


@settings(deadline=None)
@given(tables(), st.integers(0, 3))
def test_a_permutation_has_every_row_once(table: pa.Table, seed: int) -> None:
    permuted = partitioning.permute(table, seed)
    assert_rows(permuted, table, row_numbers(permuted))
    assert sorted(row_numbers(permuted)) == list(range(table.num_rows))


def test_the_seed_decides_the_order() -> None:
    table = pa.table({"row": range(100)})
    first, again, other = (row_numbers(partitioning.permute(table, seed)) for seed in (1, 1, 2))
    assert first == again
    assert len({tuple(first), tuple(other), tuple(range(100))}) == 3


def test_the_seed_decides_the_parts() -> None:
    table = pa.table({"row": range(100)})
    first, again, other = (
        [row_numbers(part) for part in partitioning.random_partition(table, 4, seed)]
        for seed in (1, 1, [1, 2])
    )
    assert first == again != other


@pytest.mark.parametrize("parts", [3, 300, 70_000])
def test_rows_of_a_part_stay_in_their_order(parts: int) -> None:
    table = pa.table({"key": np.arange(20_000) % 7, "row": range(20_000)})
    for split in (
        partitioning.hash_partition(table, ["key"], parts),
        partitioning.random_partition(table, parts, 0),
    ):
        assert len(split) == parts
        assert all(np.all(np.diff(part["row"].to_numpy()) > 0) for part in split if part.num_rows)


EQUAL_KEYS = {
    "integers of any width": [pa.array([1, -1, None], pa.int8()), pa.array([1, -1, None], pa.int64())],
    "integers with and without a sign": [pa.array([1, 2**62], pa.int64()), pa.array([1, 2**62], pa.uint64())],
    "integers and floats": [
        pa.array([1, -7, None]),
        pa.array([1.0, -7.0, None]),
        pa.array([1, -7, None], pa.float32()),
    ],
    "floats": [
        pa.array([0.0, NAN, 1.5]),
        pa.array([-0.0, -NAN, 1.5]),
        pa.array([0.0, NAN, 1.5], pa.float32()),
    ],
    "float16": [pa.array(np.array([1.5], np.float16)), pa.array([1.5])],
    "booleans and integers": [pa.array([True, False, None]), pa.array([1, 0, None])],
    "strings": [
        pa.array(["a", "ü", None]),
        pa.array(["a", "ü", None], pa.large_string()),
        pa.array(["a", "ü", None], pa.string_view()),
        pa.array(["a", "ü", None]).dictionary_encode(),
    ],
    "bytes": [pa.array([b"ab"]), pa.array([b"ab"], pa.large_binary()), pa.array([b"ab"], pa.binary(2))],
    "nulls of any type": [pa.nulls(1), pa.array([None], pa.string()), pa.array([None], pa.float64())],
    "times in any unit": [pa.array([3], pa.timestamp("s")), pa.array([3_000_000], pa.timestamp("us"))],
    "dates": [pa.array([3], pa.date32()), pa.array([3 * 86_400_000], pa.date64())],
    "decimals": [
        pa.array([1, 3], pa.decimal128(5, 2)),
        pa.array([1, 3], pa.decimal128(9, 4)),
        pa.array([1, 3]),
    ],
}


@pytest.mark.parametrize("layouts", EQUAL_KEYS.values(), ids=EQUAL_KEYS.keys())
def test_equal_values_have_equal_hashes_in_every_layout(layouts: list[pa.Array]) -> None:
    first, *others = (
        partitioning.key_hashes(pa.table({"key": layout}), ["key"]).tolist() for layout in layouts
    )
    assert all(other == first for other in others)


def test_hashes_are_the_same_in_every_process() -> None:
    program = (
        "import pyarrow as pa; from skate.data._kernels import partitioning;"
        "t = pa.table({'a': [1, None, 3], 'b': ['x', 'y', None], 'c': [0.5, 2.0, None]});"
        "print(partitioning.key_hashes(t, ['a', 'b', 'c']).tolist())"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        for _ in range(2)
    }
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None], "c": [0.5, 2.0, None]})
    here = partitioning.key_hashes(table, ["a", "b", "c"]).tolist()
    assert outputs == {f"{here}\n".encode()}


def test_the_order_of_keys_matters() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert partitioning.key_hashes(table, ["a", "b"]) != partitioning.key_hashes(table, ["b", "a"])


@pytest.mark.parametrize("keys", [["number"], ["text"], ["number", "text"], ["steps"]])
def test_distinct_keys_spread_evenly(keys: list[str]) -> None:
    rows = 20_000
    table = pa.table(
        {"number": range(rows), "text": [f"user-{i}" for i in range(rows)], "steps": np.arange(rows) * 1024.0}
    )
    sizes = [part.num_rows for part in partitioning.hash_partition(table, keys, 16)]
    assert min(sizes) > 0.85 * rows / 16
    assert max(sizes) < 1.15 * rows / 16


def test_another_seed_splits_a_part_again() -> None:
    part = partitioning.hash_partition(pa.table({"k": range(10_000)}), ["k"], 8)[3]
    sizes = [again.num_rows for again in partitioning.hash_partition(part, ["k"], 8, seed=1)]
    assert min(sizes) > 0


def test_a_block_of_nothing_has_empty_parts() -> None:
    assert [part.num_rows for part in partitioning.hash_partition(pa.table({}), ["k"], 3)] == [0, 0, 0]
    assert [part.num_rows for part in partitioning.random_partition(pa.table({}), 3, 0)] == [0, 0, 0]


def test_rows_without_columns_are_distributed_too() -> None:
    rows = pa.table({"x": range(100)}).select([])
    assert sum(part.num_rows for part in partitioning.random_partition(rows, 3, 0)) == 100
    assert partitioning.permute(rows, 0).num_rows == 100


def test_nested_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot partition by 'x', a column of type list"):
        partitioning.hash_partition(pa.table({"x": [[1]]}), ["x"], 2)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'y' to partition by"):
        partitioning.hash_partition(pa.table({"x": [1]}), ["y"], 2)
