"""Methods that convert a dataset to objects of other libraries, and to references to blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import skate
from skate.air._optional import load
from skate.data._arguments import NON_NEGATIVE, POSITIVE, check_protocol, checked
from skate.data._block import batches, frames, tables
from skate.data._dataset.base import PlanHolder
from skate.data._exec.items import Item, fetch_rows
from skate.data._plan import nodes
from skate.data.block import BlockMetadata

if TYPE_CHECKING:
    from skate.data.random_access_dataset import RandomAccessDataset


class BlockEntry(NamedTuple):
    """A reference to a block, with the metadata of the block."""

    ref: Any
    metadata: BlockMetadata


@dataclass(frozen=True)
class RefBundle:
    """A bundle of blocks."""

    blocks: tuple[BlockEntry, ...]
    schema: pa.Schema | None = None
    owns_blocks: bool = False

    @property
    def block_refs(self) -> list[Any]:
        """References to the blocks."""
        return [entry.ref for entry in self.blocks]

    @property
    def metadata(self) -> list[BlockMetadata]:
        """The metadata of each block."""
        return [entry.metadata for entry in self.blocks]

    def num_rows(self) -> int:
        """Return the number of rows of all blocks."""
        return sum(each.num_rows or 0 for each in self.metadata)

    def size_bytes(self) -> int:
        """Return the bytes of all blocks."""
        return sum(each.size_bytes or 0 for each in self.metadata)


class ConversionMethods(PlanHolder):
    """Methods of `Dataset` that convert it to objects of other libraries."""

    @checked(limit=NON_NEGATIVE)
    def to_pandas(self, limit: float | None = None) -> Any:
        """Return all rows as a pandas DataFrame with Arrow-backed columns, as in Ray.

        With `DataContext.enable_arrow_backed_pandas_conversion = False`, columns have NumPy types.

        Args:
            limit: Raise ValueError if the dataset has more rows, before they fill the memory. None and infinity are
                no limit.
        """
        most = None if limit is None or math.isinf(limit) else int(limit)
        node = self._node if most is None else nodes.Limit(self._node, most + 1)
        found = list(self._tables(node))
        if most is not None and sum(each.num_rows for each in found) > most:
            raise ValueError(
                f"The dataset has more than {most} rows, the limit: raise it, or call "
                f"dataset.limit({most}).to_pandas() for the first ones."
            )
        whole = tables.concat(found) if found else pa.table({})
        return frames.to_pandas(whole, arrow_types=self._context.enable_arrow_backed_pandas_conversion)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one Arrow table, without copying blocks."""
        found = list(self._tables())
        return frames.without_mark(tables.concat(found)) if found else pa.table({})

    def to_arrow_refs(self) -> list[Any]:
        """Return a reference to an Arrow table for each block."""
        return self.get_internal_block_refs()

    def to_pandas_refs(self) -> list[Any]:
        """Return a reference to a pandas DataFrame for each block, with the types of `to_pandas`."""
        arrow_types = self._context.enable_arrow_backed_pandas_conversion
        return [_as_pandas.remote(each, arrow_types) for each in self.get_internal_block_refs()]

    @checked()
    def to_numpy_refs(self, *, column: str | None = None) -> list[Any]:
        """Return a reference to the NumPy arrays of each block: a dict of arrays, or the array of one column."""
        there = self.columns() or []  # type: ignore[attr-defined]  # of `ConsumptionMethods`
        if column is not None and column not in there:
            raise ValueError(f"cannot convert the column {column!r}: the dataset has the columns {there}")
        return [_as_numpy.remote(each, column) for each in self.get_internal_block_refs()]

    def get_internal_block_refs(self) -> list[Any]:
        """Return a reference to each block."""
        items = self._node.items if isinstance(self._node, nodes.Values) else self._items()
        return [reference_to(item) for item in items]

    def iter_internal_ref_bundles(self) -> Iterator[RefBundle]:
        """Yield a reference to each block, with its metadata."""
        items = self._node.items if isinstance(self._node, nodes.Values) else self._items()
        for item in items:
            metadata = BlockMetadata(item.rows, item.bytes, input_files=list(item.files))
            yield RefBundle((BlockEntry(reference_to(item), metadata),), item.schema)

    @checked(num_workers=POSITIVE)
    def to_random_access_dataset(self, key: str, num_workers: int | None = None) -> RandomAccessDataset:
        """Sort the rows by a column, and return a dataset that looks up rows by its values.

        Args:
            key: The column; its values should be unique.
            num_workers: Number of actors that look up rows; 4 by default.

        >>> import skate
        >>> numbers = skate.data.range(100).to_random_access_dataset("id", num_workers=1)
        >>> skate.get(numbers.get_async(7)), numbers.multiget([3, 200])
        ({'id': 7}, [{'id': 3}, None])
        """
        from skate.data.random_access_dataset import RandomAccessDataset

        return RandomAccessDataset(self, key, 4 if num_workers is None else num_workers)  # type: ignore[arg-type]

    @checked()
    def to_dask(self, meta: Any = None, verify_meta: bool = True) -> Any:
        """Return a Dask DataFrame with a partition for each block, with the types of `to_pandas`."""
        dataframe = load("dask.dataframe", "to_dask", "dask[dataframe]")
        delayed = load("dask", "to_dask").delayed
        arrow_types = self._context.enable_arrow_backed_pandas_conversion
        parts = [delayed(_frame_of)(each, arrow_types) for each in self.get_internal_block_refs()]
        return dataframe.from_delayed(parts, meta=meta, verify_meta=verify_meta)

    def to_modin(self) -> Any:
        """Return a Modin DataFrame."""
        return load("modin.pandas", "to_modin", "modin").DataFrame(self.to_pandas())

    def to_daft(self) -> Any:
        """Return a Daft DataFrame."""
        return load("daft", "to_daft").from_arrow(self.to_arrow())

    def to_spark(self, spark: Any) -> Any:
        """Return a DataFrame of a Spark session."""
        check_protocol("spark", spark, "createDataFrame", "a SparkSession")
        return spark.createDataFrame(self.to_pandas())


def reference_to(item: Item) -> Any:
    """Return a reference to the rows of an item."""
    if isinstance(item.block, pa.Table):
        return skate.put(tables.compact(fetch_rows(item)))
    if item.start == 0 and item.rows == item.whole:
        return item.block
    return _slice_block.remote(item.block, item.start, item.rows)


@skate.remote
def _slice_block(block: pa.Table, start: int, rows: int) -> pa.Table:
    return tables.compact(tables.slice_rows(block, start, start + rows))


@skate.remote
def _as_pandas(block: pa.Table, arrow_types: bool) -> Any:
    return frames.to_pandas(block, arrow_types=arrow_types)


@skate.remote
def _as_numpy(block: pa.Table, column: str | None) -> Any:
    made = batches.to_batch(block, "numpy")
    return made if column is None else made[column]


def _frame_of(block: Any, arrow_types: bool) -> Any:
    # The scheduler of `skate.util.dask` passes the block itself, since references in arguments of tasks are resolved.
    table = block if isinstance(block, pa.Table) else skate.get(block)
    return frames.to_pandas(table, arrow_types=arrow_types)
