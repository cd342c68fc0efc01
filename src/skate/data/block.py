"""A block, the unit in which datasets are stored and moved, and what can be asked of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._block import batches, columns, frames, rows, tables, values
from skate.data._block.errors import BatchTypeError

__all__ = ["AggType", "Block", "BlockAccessor", "BlockMetadata", "KeyType", "T", "U"]

#: A block is a `pyarrow.Table`, always.
Block: TypeAlias = pa.Table

# Ray's type variables, with which subclasses of AggregateFnV2 annotate their methods.
T = TypeVar("T", contravariant=True)
U = TypeVar("U", covariant=True)
KeyType = TypeVar("KeyType")
AggType = TypeVar("AggType")


@dataclass
class BlockMetadata:
    """What is known of a block without looking into it.

    Args:
        num_rows: How many rows it has, if that is known.
        size_bytes: Its size in memory, if that is known.
        exec_stats: What it took to make it.
        task_exec_stats: The same for the whole task that made it.
        input_files: The files it was read from.
    """

    num_rows: int | None
    size_bytes: int | None
    exec_stats: Any = None
    task_exec_stats: Any = None
    input_files: Sequence[str] | None = None


class BlockAccessor:
    """Ask a block for its rows, its columns, and what can be made of it.

    Args:
        block: The block.

    Example:
        >>> block = BlockAccessor.batch_to_block({"id": [1, 2, 3]})
        >>> accessor = BlockAccessor.for_block(block)
        >>> accessor.num_rows(), accessor.size_bytes()
        (3, 24)
        >>> accessor.to_numpy("id")
        array([1, 2, 3])
    """

    def __init__(self, block: Block) -> None:
        self._block = block

    @staticmethod
    def for_block(block: Any) -> BlockAccessor:
        """Return an accessor of a block; a DataFrame is made a block first.

        Raises:
            TypeError: It is neither.
        """
        if isinstance(block, pa.Table):
            return BlockAccessor(block)
        if isinstance(block, pa.RecordBatch) or frames.is_pandas(block) or frames.is_polars(block):
            return BlockAccessor(batches.to_block(block))
        raise BatchTypeError("a block", type(block).__qualname__, "a pyarrow Table or a DataFrame")

    @staticmethod
    def batch_to_block(batch: Any, block_type: Any = None) -> Block:
        """Return a batch of any format as a block.

        Args:
            batch: A dict of columns, a DataFrame, or a Table.
            block_type: Accepted as in Ray; a block is a `pyarrow.Table` whatever it says.
        """
        return batches.to_block(batch)

    def num_rows(self) -> int:
        """Return how many rows there are."""
        return int(self._block.num_rows)

    def size_bytes(self) -> int:
        """Return the size in memory of the rows, without what a slice leaves out."""
        return tables.nbytes(self._block)

    def schema(self) -> pa.Schema:
        """Return the columns' names and types, as Arrow has them."""
        return self._block.schema

    def column_names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(self._block.column_names)

    def get_metadata(
        self,
        input_files: Sequence[str] | None = None,
        block_exec_stats: Any = None,
        task_exec_stats: Any = None,
    ) -> BlockMetadata:
        """Return what is known of the block, with what the caller knows of how it was made."""
        return BlockMetadata(
            self.num_rows(), self.size_bytes(), block_exec_stats, task_exec_stats, input_files
        )

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts.

        Args:
            public_row_format: Accepted as in Ray; a row is a dict whatever it says.
        """
        return rows.to_rows(self._block)

    def slice(self, start: int, end: int, copy: bool = False) -> Block:
        """Return the rows from `start` up to `end`, as a view or as a copy."""
        part = tables.slice_rows(self._block, start, end)
        return tables.deep_copy(part) if copy else part

    def take(self, indices: Sequence[int]) -> Block:
        """Return the rows at these positions, in their order."""
        return tables.take(self._block, indices)

    def select(self, columns: Sequence[str]) -> Block:
        """Return some of the columns.

        Raises:
            ValueError: A name is no string.
            KeyError: There is no such column.
        """
        wrong = [name for name in columns if not isinstance(name, str)]
        if wrong:
            raise ValueError(f"select takes names of columns, but got {wrong}")
        return self._block.select(list(columns))

    def drop(self, columns: Sequence[str]) -> Block:
        """Return the block without some of its columns."""
        return self._block.drop_columns(list(columns))

    def rename_columns(self, columns_rename: Mapping[str, str]) -> Block:
        """Return the block with new names for some columns, given as `{old: new}`."""
        names = self._block.column_names
        return self._block.rename_columns([columns_rename.get(name, name) for name in names])

    def upsert_column(self, column_name: str, column_data: Any) -> Block:
        """Return the block with a column added, or replaced where there is one of that name."""
        column = columns.to_column(column_data, column_name)
        index = self._block.schema.get_field_index(column_name)
        if index < 0:
            return self._block.append_column(column_name, column)
        return self._block.set_column(index, column_name, column)

    def fill_column(self, name: str, value: Any) -> Block:
        """Return the block with a column that has one value in every row."""
        return self.upsert_column(name, pa.repeat(pa.scalar(value), self.num_rows()))

    def random_shuffle(self, random_seed: int | None) -> Block:
        """Return the rows in random order."""
        order = np.random.default_rng(random_seed).permutation(self.num_rows())
        return tables.take(self._block, order)

    def zip(self, other: Block) -> Block:
        """Return a block with the columns of both; a name that both have gets a number in the second.

        Raises:
            ValueError: They differ in their number of rows.
        """
        if other.num_rows != self.num_rows():
            raise ValueError(
                f"zip needs as many rows on both sides, got {self.num_rows()} and {other.num_rows}"
            )
        zipped = self._block
        for name, column in zip(other.column_names, other.columns, strict=True):
            unique, number = name, 0
            while unique in zipped.column_names:
                number += 1
                unique = f"{name}_{number}"
            zipped = zipped.append_column(unique, column)
        return zipped

    def to_arrow(self) -> Block:
        """Return the block as a `pyarrow.Table`, which it is."""
        return self._block

    def to_block(self) -> Block:
        """Return the block itself."""
        return self._block

    def to_default(self) -> Block:
        """Return the block itself."""
        return self._block

    def to_pandas(self) -> Any:
        """Return the block as a DataFrame of pandas."""
        return frames.to_pandas(self._block)

    def to_numpy(
        self, columns: str | Sequence[str] | None = None
    ) -> npt.NDArray[Any] | dict[str, npt.NDArray[Any]]:
        """Return one column as an ndarray, or several as a dict of ndarrays.

        Args:
            columns: A name, or several; None stands for all.

        Raises:
            ValueError: There is no such column.
        """
        wanted = [columns] if isinstance(columns, str) else columns
        unknown = [name for name in wanted or () if name not in self._block.column_names]
        if unknown:
            raise ValueError(f"there is no column {unknown[0]!r}; there are {self._block.column_names}")
        if isinstance(columns, str):
            return values.to_ndarray(self._block.column(columns))
        return batches.to_numpy(self._block if wanted is None else self._block.select(list(wanted)))

    def to_batch_format(self, batch_format: str | None) -> Any:
        """Return the block as a batch: `"default"`, `"numpy"`, `"pandas"`, `"pyarrow"` or `"polars"`."""
        return batches.to_batch(self._block, batch_format)

    def count(self, on: str, ignore_nulls: bool = False) -> int:
        """Return the number of values in a column."""
        return int(pc.count(self._block.column(on), mode="only_valid" if ignore_nulls else "all").as_py())

    def sum(self, on: str, ignore_nulls: bool) -> Any:
        """Return the sum of a column; None if it has no value, or a null that is not ignored."""
        return pc.sum(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def min(self, on: str, ignore_nulls: bool) -> Any:
        """Return the least value of a column; None if it has none, or a null that is not ignored."""
        return pc.min(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def max(self, on: str, ignore_nulls: bool) -> Any:
        """Return the greatest value of a column; None if it has none, or a null that is not ignored."""
        return pc.max(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def mean(self, on: str, ignore_nulls: bool) -> Any:
        """Return the mean of a column; None if it has no value, or a null that is not ignored."""
        return pc.mean(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def sum_of_squared_diffs_from_mean(self, on: str, ignore_nulls: bool, mean: float | None = None) -> Any:
        """Return the sum of the squares of a column's distances from its mean, or from another value."""
        if mean is None:
            mean = self.mean(on, ignore_nulls)
        if mean is None:
            return None
        distances = pc.subtract(self._block.column(on), mean)
        return pc.sum(pc.multiply(distances, distances), skip_nulls=ignore_nulls).as_py()
