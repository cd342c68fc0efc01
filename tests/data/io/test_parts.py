"""Cutting lists into parts, and joining blocks."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from skate.data._io.balancing import balance, merge_small


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 60))
def test_parts_are_consecutive_and_none_is_empty(weights: list[int], parts: int) -> None:
    elements = list(range(len(weights)))
    found = balance(elements, weights, parts)
    assert [element for part in found for element in part] == elements
    assert len(found) == min(parts, len(elements))
    assert all(found)


@given(st.integers(1, 200), st.integers(1, 20))
def test_elements_of_one_weight_are_spread_evenly(count: int, parts: int) -> None:
    sizes = [len(part) for part in balance(range(count), [7] * count, parts)]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(8, 4000))
def test_joined_blocks_hold_the_same_rows_and_only_the_last_is_small(sizes: list[int], target: int) -> None:
    blocks = [pa.table({"n": pa.array(range(size), pa.int64())}) for size in sizes]
    found = list(merge_small(blocks, target))
    assert [n for block in found for n in block["n"].to_pylist()] == [
        n for size in sizes for n in range(size)
    ]
    assert all(block.nbytes >= target // 4 for block in found[:-1])


def test_an_empty_block_is_kept_for_its_schema_if_there_is_no_other() -> None:
    empty = pa.table({"n": pa.array([], pa.int64())})
    assert [block.schema for block in merge_small([empty, empty], 100)] == [empty.schema]
