from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skate.data._block import objects, tables, tensors
from skate.data._block.errors import SchemaConflictError

ROWS = 5000
COLUMNS: dict[str, Any] = {
    "int": pa.array(range(ROWS)),
    "nulls": pa.array([i if i % 2 else None for i in range(ROWS)]),
    "bool": pa.array([i % 3 == 0 for i in range(ROWS)]),
    "string": pa.array([f"row {i}" for i in range(ROWS)]),
    "large string": pa.array([f"row {i}" for i in range(ROWS)], pa.large_string()),
    "list": pa.array([[i] * (i % 4) for i in range(ROWS)]),
    "list of lists": pa.array([[[str(i)] * (i % 3)] for i in range(ROWS)]),
    "fixed list": pa.array([[i, i] for i in range(ROWS)], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": i, "b": [str(i)]} for i in range(ROWS)]),
    "map": pa.array([[(str(i), i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
    "tensor": tensors.from_ndarray(np.arange(ROWS * 4).reshape(ROWS, 2, 2)),
    "ragged": tensors.from_ndarrays([np.ones(i % 5) for i in range(ROWS)]),
    "object": objects.from_objects([complex(i) for i in range(ROWS)]),
}


def stored_size(table: pa.Table) -> int:
    """Return how much the object store would hold: the buffers that pickle hands out, and the rest."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(table, protocol=5, buffer_callback=buffers.append)
    return len(pickled) + sum(buffer.raw().nbytes for buffer in buffers)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_compact_slice_stores_its_rows_alone(name: str) -> None:
    part = pa.table({"x": COLUMNS[name]}).slice(1001, 7)
    compact = tables.compact(part)
    compact.validate(full=True)
    assert compact.equals(part)
    assert compact.schema.equals(part.schema)
    # 2 kB is for what pickle says about types and pyarrow about buffers; each has at most one offset more.
    assert stored_size(compact) <= tables.nbytes(part) + 2048
    assert stored_size(part) > 2 * stored_size(compact) or name == "bool"
    assert sum(chunk.get_total_buffer_size() for chunk in compact["x"].chunks) <= tables.nbytes(part) + 64


@pytest.mark.parametrize("name", COLUMNS)
def test_a_whole_block_is_compact_as_it_is(name: str) -> None:
    block = pa.table({"x": COLUMNS[name]})
    assert tables.compact(block) is block


def test_only_columns_that_need_it_are_copied() -> None:
    whole = pa.array(range(7))
    block = pa.table({"whole": whole, "part": COLUMNS["int"].slice(3, 7)})
    compact = tables.compact(block)
    assert compact["whole"].chunk(0).buffers()[1].address == whole.buffers()[1].address
    assert compact["part"].chunk(0).get_total_buffer_size() == 56


@pytest.mark.parametrize("name", COLUMNS)
def test_many_small_chunks_become_one(name: str) -> None:
    block = pa.concat_tables([pa.table({"x": COLUMNS[name]}).slice(i * 100, 3) for i in range(20)])
    compact = tables.compact(block)
    assert compact.equals(block)
    assert compact["x"].num_chunks == 1
    assert stored_size(compact) < tables.nbytes(block) + 2048


def test_chunks_with_dictionaries_of_their_own_become_one() -> None:
    chunks = [pa.array([text, None]).dictionary_encode() for text in ("a", "b")]
    compact = tables.compact(pa.table({"x": pa.chunked_array(chunks)}))
    assert compact["x"].num_chunks == 1
    assert compact["x"].to_pylist() == ["a", None, "b", None]


def test_large_chunks_are_not_copied() -> None:
    chunk = pa.array(np.zeros(100_000))
    block = pa.table({"x": pa.chunked_array([chunk, chunk])})
    assert tables.compact(block) is block


def test_a_block_without_columns_is_compact() -> None:
    assert tables.compact(tables.empty_rows(3)).num_rows == 3


def test_the_size_of_a_slice_is_that_of_its_rows() -> None:
    assert tables.nbytes(pa.table({"x": COLUMNS["int"]}).slice(10, 5)) == 40
    tensor = pa.table({"x": COLUMNS["tensor"]}).slice(10, 5)
    assert tables.nbytes(tensor) == 5 * 4 * 8


def test_a_copy_shares_no_memory_with_its_block() -> None:
    block = pa.table({"x": np.arange(10)})
    copy = tables.deep_copy(block)
    assert copy.equals(block)
    assert copy["x"].chunk(0).buffers()[1].address != block["x"].chunk(0).buffers()[1].address


def test_blocks_are_joined_without_a_copy() -> None:
    blocks = [pa.table({"x": [1, 2]}), pa.table({"x": [3]})]
    whole = tables.concat(blocks)
    assert whole["x"].to_pylist() == [1, 2, 3]
    assert whole["x"].chunk(0).buffers()[1].address == blocks[0]["x"].chunk(0).buffers()[1].address


def test_blocks_of_differing_schemas_are_joined_in_one() -> None:
    whole = tables.concat([pa.table({"x": [1]}), pa.table({"x": [None]}), pa.table({"x": [0.5], "y": ["a"]})])
    assert whole.to_pydict() == {"x": [1.0, None, 0.5], "y": [None, None, "a"]}


def test_empty_blocks_add_nothing_but_their_columns() -> None:
    empty = pa.table({"y": pa.array([], pa.int8())})
    whole = tables.concat([pa.table({}), pa.table({"x": [1]}), empty])
    assert whole.schema == pa.schema({"x": pa.int64(), "y": pa.int8()})
    assert whole["x"].num_chunks == 1
    assert tables.concat([pa.table({}), pa.table({})]).num_rows == 0
    assert tables.concat([]).num_rows == 0
    assert tables.concat([empty, empty]).schema == empty.schema


def test_blocks_without_columns_add_up_their_rows() -> None:
    assert tables.concat([tables.empty_rows(2), tables.empty_rows(3)]).num_rows == 5


def test_blocks_in_conflict_are_not_joined() -> None:
    with pytest.raises(SchemaConflictError, match="'x' is int64 in one block and string in another"):
        tables.concat([pa.table({"x": [1]}), pa.table({"x": ["a"]})])


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_taken_in_any_order(name: str) -> None:
    column = pa.chunked_array([COLUMNS[name].slice(0, 100), COLUMNS[name].slice(100, 100)])
    taken = tables.take(pa.table({"x": column}), np.array([150, 3, 3]))
    assert taken.schema.field("x").type == column.type
    parts = [column.slice(i, 1).combine_chunks() for i in (150, 3, 3)]
    assert taken.equals(pa.table({"x": pa.chunked_array(parts)}))


def test_taking_no_rows_keeps_the_schema() -> None:
    block = pa.table({"x": [1], "y": ["a"]})
    assert tables.take(block, []).schema == block.schema
    assert tables.take(tables.empty_rows(3), [0, 0]).num_rows == 2


def test_text_that_32_bit_offsets_cannot_hold_gets_wider_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_LARGEST_OFFSET", 2000)
    short, long = ["a"] * 10, ["b" * 250] * 10
    block = pa.table({"short": short, "long": long, "list": [[text] for text in long]})
    block = block.replace_schema_metadata({"made": "here"})
    taken = tables.take(block, range(10))
    assert taken.schema.types == [pa.string(), pa.large_string(), pa.large_list(pa.large_string())]
    assert taken["long"].to_pylist() == long
    assert taken.schema.metadata == block.schema.metadata
    assert tables.take(block, [0]).schema == block.schema, "what is taken of it fits again"
    assert tables.take(pa.table({"x": ["c" * 100]}), [0] * 30).schema.types == [pa.large_string()]
    assert tables.take(pa.table({"x": ["c" * 100]}), [0] * 10).schema.types == [pa.string()]


def test_several_chunks_are_combined_into_one() -> None:
    block = pa.concat_tables([pa.table({"x": [1]}), pa.table({"x": [2]})])
    assert tables.combine(block)["x"].num_chunks == 1
    assert tables.combine(tables.combine(block)).equals(block)


def test_slices_end_with_the_block() -> None:
    assert tables.slice_rows(pa.table({"x": [1, 2]}), 1, 10)["x"].to_pylist() == [2]
    assert tables.slice_rows(tables.empty_rows(2), 1, 10).num_rows == 1
    assert tables.slice_rows(pa.table({"x": [1, 2]}), 2, 1).num_rows == 0
