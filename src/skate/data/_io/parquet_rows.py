"""Read the rows of one Parquet file in pieces of block size, without row groups that cannot match."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from skate.data._block import encodings, tables, tensors
from skate.data._io import pickled_columns
from skate.data._io.balancing import DEFAULT_BLOCK_BYTES

_MAX_ROWS = 1 << 20
# Writers store the distinct values of a column in a page of up to 1 MiB, and further values in the rows. A page of this
# size, compressed, therefore has all values, and Arrow decodes text twice as fast if it looks at each of them once.
_MAX_DICTIONARY_BYTES = 64 * 1024
_MAX_TEXT_BYTES = 2**31 - 1  # of one chunk, whose offsets have 32 bits


def open_file(
    source: pa.NativeFile, groups: Sequence[int], options: dict[str, Any]
) -> tuple[pq.ParquetFile, frozenset[str]]:
    """Open a Parquet file; return it with the columns of text that it reads as dictionaries, which `pieces` decodes."""
    parquet = pq.ParquetFile(source, **options)
    repeating = frozenset() if "read_dictionary" in options else _repeating_columns(parquet, groups)
    if repeating:
        again = {"metadata": parquet.metadata, **options, "read_dictionary": sorted(repeating)}
        parquet = pq.ParquetFile(source, **again)
    return parquet, repeating


def _repeating_columns(parquet: pq.ParquetFile, groups: Sequence[int]) -> frozenset[str]:
    """Return the columns of text whose values repeat, judged by the first of some row groups."""
    if not groups:
        return frozenset()
    text = {field.name for field in parquet.schema_arrow if field.type == pa.string()}
    group = parquet.metadata.row_group(groups[0])
    columns = (group.column(index) for index in range(group.num_columns))
    return frozenset(
        column.path_in_schema
        for column in columns
        if column.path_in_schema in text
        and column.dictionary_page_offset
        and 0 < column.data_page_offset - column.dictionary_page_offset <= _MAX_DICTIONARY_BYTES
    )


def _decode_text(block: pa.Table, repeating: Collection[str]) -> pa.Table:
    for index, field in enumerate(block.schema):
        if field.name in repeating:
            chunks = [part for chunk in block.column(index).chunks for part in _decode_chunk(chunk)]
            block = block.set_column(
                index, field.with_type(pa.string()), pa.chunked_array(chunks, pa.string())
            )
    return block


def _decode_chunk(chunk: pa.DictionaryArray) -> Iterator[pa.Array]:
    longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 1
    rows = max(1, _MAX_TEXT_BYTES // longest)
    for start in range(0, len(chunk), rows):
        yield encodings.decode(chunk.slice(start, rows))


def pieces(
    parquet: pq.ParquetFile,
    groups: Sequence[int],
    first_row: int,
    *,
    columns: list[str],
    repeating: Collection[str],
    keep: Callable[[Sequence[int]], set[int] | None],
    row_bytes: float,
    target: int | None,
    batch_size: int | None,
    use_threads: bool,
    trusted: bool,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of row groups; each piece comes with the number of its first row in the file.

    Args:
        parquet: The open file.
        groups: The row groups to read.
        first_row: Number of the first row of the first group.
        columns: The columns to read.
        repeating: The columns that the file reads as dictionaries.
        keep: Row groups that can match; None if all can.
        row_bytes: Estimated size of a row, from which the number of rows per read is derived.
        target: Approximate size of a piece, in bytes.
        batch_size: Rows per piece; overrides `target`.
        use_threads: Whether to decode columns in parallel.
        trusted: Whether pickled objects may be loaded.
    """
    shaped = functools.partial(_select_columns, columns=columns, repeating=repeating, trusted=trusted)
    kept = keep(groups)
    if not groups:
        yield 0, shaped(parquet.schema_arrow.empty_table())
    limit = target if target is not None else DEFAULT_BLOCK_BYTES
    # The estimate can be far too low: read small steps and merge them by their actual size.
    step = batch_size or max(1, min(_MAX_ROWS, int(limit / 4 / max(row_bytes, 1))))
    for group in groups:
        rows = parquet.metadata.row_group(group).num_rows
        if kept is None or group in kept:
            if not columns:
                yield first_row, _without_columns(rows)
            elif batch_size is None and rows * row_bytes <= limit / 2 and rows <= _MAX_ROWS:
                block = parquet.read_row_group(group, columns=columns, use_threads=use_threads)
                yield first_row, shaped(block)
            else:
                batches = parquet.iter_batches(
                    step, row_groups=[group], columns=columns, use_threads=use_threads
                )
                found = (shaped(pa.Table.from_batches([batch])) for batch in batches)
                yield from _merge_small(found, first_row, limit, batch_size is not None)
        first_row += rows


def matching_groups(
    path: str, filesystem: pafs.FileSystem, groups: Sequence[int], *, filters: Sequence[pc.Expression]
) -> set[int] | None:
    """Return the row groups that may hold matching rows, by their statistics; None for all."""
    if not filters or not groups:
        return None
    import pyarrow.dataset as pads  # imports pandas if installed, so import it only if needed

    fragment = pads.ParquetFileFormat().make_fragment(path, filesystem, row_groups=list(groups))
    for expression in filters:
        try:
            fragment = fragment.subset(expression, schema=fragment.physical_schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError):
            # The file lacks a column or holds it with another type: the filter is applied row by row.
            continue
    return {group.id for group in fragment.row_groups}


def decode_tensors(block: pa.Table, columns: dict[str, tuple[Any, tuple[int, ...]]]) -> pa.Table:
    """Convert columns of raw bytes to tensors.

    Raises:
        ValueError: The size of a value does not match dtype and shape.
    """
    for name, (dtype, shape) in columns.items():
        if name not in block.column_names:
            continue
        index = block.column_names.index(name)
        wanted = np.dtype(dtype).itemsize * int(np.prod(shape))
        raw = block.column(index).cast(pa.large_binary())
        lengths = pc.unique(pc.binary_length(raw)).to_pylist()
        if lengths not in ([], [wanted]):
            raise ValueError(
                f"column {name!r} has values of {lengths} bytes, but {shape} of {np.dtype(dtype)} takes {wanted}"
            )
        data = b"".join(raw.to_pylist())
        array = np.frombuffer(data, dtype).reshape(block.num_rows, *shape)
        column = tensors.from_ndarray(array)
        block = block.set_column(index, pa.field(name, column.type), column)
    return block


def add_row_hash(block: pa.Table, path: str, first_row: int, name: str) -> pa.Table:
    """Add a column with a hash of the path and the position of each row."""
    seed = np.frombuffer(hashlib.blake2b(path.encode(), digest_size=8).digest(), np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64: the finalizer of SplitMix64
        mixed = seed + np.arange(first_row, first_row + block.num_rows, dtype=np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    if name in block.column_names:
        block = block.drop_columns([name])
    return block.append_column(pa.field(name, pa.uint64()), pa.array(mixed))


def _merge_small(
    blocks: Iterable[pa.Table], first_row: int, limit: int, each: bool
) -> Iterator[tuple[int, pa.Table]]:
    """Yield blocks of at least half the limit; larger blocks pass unchanged."""
    waiting: list[pa.Table] = []
    size = 0
    for block in blocks:
        size += tables.nbytes(block)
        waiting.append(block)
        if each or size >= limit / 2:
            yield first_row, pa.concat_tables(waiting)
            first_row += sum(block.num_rows for block in waiting)
            waiting, size = [], 0
    if waiting:
        yield first_row, pa.concat_tables(waiting)


def _select_columns(
    block: pa.Table, columns: list[str], repeating: Collection[str], trusted: bool
) -> pa.Table:
    # Parquet selects by prefix: `a` also selects a column `a.b`.
    block = _decode_text(block.select(columns), repeating)
    block = pickled_columns.restore_objects(block, trusted)
    return pa.Table.from_arrays(
        block.columns, schema=pa.schema([field.remove_metadata() for field in block.schema])
    )


def _without_columns(rows: int) -> pa.Table:
    empty = pa.array([{}] * rows, pa.struct([]))
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(empty)])
