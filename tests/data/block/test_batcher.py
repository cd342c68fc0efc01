from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data._block import tables
from skate.data._block.batcher import batch_blocks, shuffle_batches


def blocks_of(*sizes: int) -> list[pa.Table]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        pa.table({"id": pa.array(range(start, start + size), pa.int64())})
        for start, size in zip(starts, sizes, strict=True)
    ]


def ids(batch: pa.Table) -> list[int]:
    return batch["id"].to_pylist()  # type: ignore[no-any-return]  # pyarrow has no type information


SIZES = st.lists(st.integers(0, 30), max_size=12)


@settings(deadline=None)
@given(sizes=SIZES, batch_size=st.integers(1, 40), drop_last=st.booleans())
def test_batches_have_their_size_and_keep_the_order(
    sizes: list[int], batch_size: int, drop_last: bool
) -> None:
    batches = [ids(batch) for batch in batch_blocks(blocks_of(*sizes), batch_size, drop_last=drop_last)]
    total = sum(sizes)
    kept = total - total % batch_size if drop_last else total
    assert [i for batch in batches for i in batch] == list(range(kept))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert not drop_last or all(len(batch) == batch_size for batch in batches)
    assert all(batches)


def test_a_batch_comes_as_soon_as_its_rows_are_there() -> None:
    seen: list[int] = []

    def arriving() -> Iterator[pa.Table]:
        for number, block in enumerate(blocks_of(3, 3, 3)):
            seen.append(number)
            yield block

    batches = batch_blocks(arriving(), 2)
    assert ids(next(batches)) == [0, 1]
    assert seen == [0]
    assert ids(next(batches)) == [2, 3]
    assert seen == [0, 1]


def test_a_batch_within_a_block_is_a_view_of_it() -> None:
    (block,) = blocks_of(10)
    first, second = batch_blocks([block], 5)
    assert first["id"].chunk(0).buffers()[1].address == block["id"].chunk(0).buffers()[1].address
    assert second["id"].chunk(0).offset == 5


def test_without_a_size_the_blocks_are_the_batches() -> None:
    blocks = blocks_of(3, 0, 4)
    assert list(batch_blocks(blocks, None)) == [blocks[0], blocks[2]]


def test_blocks_of_differing_types_make_one_batch() -> None:
    (batch,) = batch_blocks([pa.table({"x": [1]}), pa.table({"x": [0.5]})], 2)
    assert batch["x"].to_pylist() == [1.0, 0.5]


def test_rows_without_columns_are_batched_too() -> None:
    blocks = [tables.empty_rows(5), tables.empty_rows(2)]
    assert [batch.num_rows for batch in batch_blocks(blocks, 3)] == [3, 3, 1]


def test_a_block_of_many_chunks_is_combined_once() -> None:
    block = pa.concat_tables(blocks_of(*[3] * 100))
    batches = list(batch_blocks([block], 10))
    assert all(batch["id"].num_chunks == 1 for batch in batches)
    assert [i for batch in batches for i in ids(batch)] == list(range(300))


@settings(deadline=None)
@given(
    sizes=SIZES,
    batch_size=st.integers(1, 20),
    buffer_size=st.integers(1, 50),
    drop_last=st.booleans(),
    seed=st.integers(0, 3),
)
def test_shuffled_batches_hold_every_row_once(
    sizes: list[int], batch_size: int, buffer_size: int, drop_last: bool, seed: int
) -> None:
    def run() -> list[list[int]]:
        made = shuffle_batches(blocks_of(*sizes), batch_size, buffer_size, seed=seed, drop_last=drop_last)
        return [ids(batch) for batch in made]

    batches = run()
    rows = [i for batch in batches for i in batch]
    total = sum(sizes)
    assert len(set(rows)) == len(rows) == (total - total % batch_size if drop_last else total)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert run() == batches, "the same seed gives the same batches"


def test_rows_are_drawn_from_a_full_buffer() -> None:
    taken = 0
    drawn = 0

    def arriving() -> Iterator[pa.Table]:
        nonlocal taken
        for block in blocks_of(*[10] * 50):
            taken += block.num_rows
            yield block

    for batch in shuffle_batches(arriving(), 5, 40, seed=0):
        if taken < 500:
            assert taken - drawn >= 40 + 5
            assert taken - drawn < 2 * 40 + 10
        drawn += batch.num_rows
    assert drawn == 500


def test_rows_leave_their_order() -> None:
    rows = [i for batch in shuffle_batches(blocks_of(*[10] * 20), 10, 100, seed=1) for i in ids(batch)]
    assert rows != sorted(rows)
    assert rows[:10] != sorted(rows[:10])


def test_another_seed_gives_another_order() -> None:
    first, second = (
        [ids(batch) for batch in shuffle_batches(blocks_of(100), 10, 50, seed=seed)] for seed in (1, 2)
    )
    assert first != second


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_at_least_one_row(size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size must be at least 1, got {size}"):
        batch_blocks([], size)
    with pytest.raises(ValueError, match=f"local_shuffle_buffer_size must be at least 1, got {size}"):
        shuffle_batches([], 1, size)


def test_a_shuffle_needs_a_batch_size() -> None:
    with pytest.raises(ValueError, match="needs a batch_size"):
        shuffle_batches([], None, 10)
