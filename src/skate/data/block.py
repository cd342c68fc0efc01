"""Blocks, the unit in which datasets are stored and moved, and their accessor."""

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

#: A block is always a `pyarrow.Table`.
Block: TypeAlias = pa.Table

# Ray's type variables, which subclasses of AggregateFnV2 use in annotations.
T = TypeVar("T", contravariant=True)
U = TypeVar("U", covariant=True)
KeyType = TypeVar("KeyType")
AggType = TypeVar("AggType")


@dataclass
class BlockMetadata:
    """Metadata of a block.

    Args:
        num_rows: Number of rows, if known.
        size_bytes: Size in memory, if known.
        exec_stats: Statistics of the computation of the block.
        task_exec_stats: Statistics of the task that computed the block.
        input_files: Files from which the block was read.
    """

    num_rows: int | None
    size_bytes: int | None
    exec_stats: Any = None
    task_exec_stats: Any = None
    input_files: Sequence[str] | None = None


class BlockAccessor:
    """Access the rows and columns of a block, and convert it.

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
        """Return an accessor of a block; a DataFrame is converted to a block first.

        Raises:
            TypeError: The argument is neither a block nor a DataFrame.
        """
        if isinstance(block, pa.Table):
            return BlockAccessor(block)
        if isinstance(block, pa.RecordBatch) or frames.is_pandas(block) or frames.is_polars(block):
            return BlockAccessor(batches.to_block(block))
        raise BatchTypeError("a block", type(block).__qualname__, "a pyarrow Table or a DataFrame")

    @staticmethod
    def batch_to_block(batch: Any, block_type: Any = None) -> Block:
        """Convert a batch of any format to a block.

        Args:
            batch: A dict of columns, a DataFrame, or a Table.
            block_type: Accepted as in Ray; a block is always a `pyarrow.Table`.
        """
        return batches.to_block(batch)

    def num_rows(self) -> int:
        """Return the number of rows."""
        return int(self._block.num_rows)

    def size_bytes(self) -> int:
        """Return the size of the rows in memory; for a slice, only its rows count."""
        return tables.nbytes(self._block)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
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
        """Return the metadata of the block, with the given files and statistics."""
        return BlockMetadata(
            self.num_rows(), self.size_bytes(), block_exec_stats, task_exec_stats, input_files
        )

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts.

        Args:
            public_row_format: Accepted as in Ray; a row is always a dict.
        """
        return rows.to_rows(self._block)

    def slice(self, start: int, end: int, copy: bool = False) -> Block:
        """Return the rows from `start` to `end`, exclusive, as a view or as a copy."""
        part = tables.slice_rows(self._block, start, end)
        return tables.deep_copy(part) if copy else part

    def take(self, indices: Sequence[int]) -> Block:
        """Return the rows at these positions, in their order."""
        return tables.take(self._block, indices)

    def select(self, columns: Sequence[str]) -> Block:
        """Return the block with only some of its columns.

        Raises:
            ValueError: A name is not a string.
            KeyError: A column does not exist.
        """
        wrong = [name for name in columns if not isinstance(name, str)]
        if wrong:
            raise ValueError(f"select takes column names, got {wrong}")
        return self._block.select(list(columns))

    def drop(self, columns: Sequence[str]) -> Block:
        """Return the block without some of its columns."""
        return self._block.drop_columns(list(columns))

    def rename_columns(self, columns_rename: Mapping[str, str]) -> Block:
        """Rename columns, given as `{old: new}`."""
        names = self._block.column_names
        return self._block.rename_columns([columns_rename.get(name, name) for name in names])

    def upsert_column(self, column_name: str, column_data: Any) -> Block:
        """Return the block with a column added or replaced."""
        column = columns.to_column(column_data, column_name)
        index = self._block.schema.get_field_index(column_name)
        if index < 0:
            return self._block.append_column(column_name, column)
        return self._block.set_column(index, column_name, column)

    def fill_column(self, name: str, value: Any) -> Block:
        """Return the block with a column that has the same value in every row."""
        return self.upsert_column(name, pa.repeat(pa.scalar(value), self.num_rows()))

    def random_shuffle(self, random_seed: int | None) -> Block:
        """Return the rows in random order."""
        order = np.random.default_rng(random_seed).permutation(self.num_rows())
        return tables.take(self._block, order)

    def zip(self, other: Block) -> Block:
        """Return a block with the columns of both; a duplicate name of the second block gets a numeric suffix.

        Raises:
            ValueError: The numbers of rows differ.
        """
        if other.num_rows != self.num_rows():
            raise ValueError(
                f"zip needs blocks with the same number of rows, got {self.num_rows()} and {other.num_rows}"
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
        """Return the block, which is a `pyarrow.Table`."""
        return self._block

    def to_block(self) -> Block:
        """Return the block itself."""
        return self._block

    def to_default(self) -> Block:
        """Return the block itself."""
        return self._block

    def to_pandas(self) -> Any:
        """Return the block as a pandas DataFrame."""
        return frames.to_pandas(self._block)

    def to_numpy(
        self, columns: str | Sequence[str] | None = None
    ) -> npt.NDArray[Any] | dict[str, npt.NDArray[Any]]:
        """Return one column as an ndarray, or several as a dict of ndarrays.

        Args:
            columns: One or several names; None means all columns.

        Raises:
            ValueError: A column does not exist.
        """
        wanted = [columns] if isinstance(columns, str) else columns
        unknown = [name for name in wanted or () if name not in self._block.column_names]
        if unknown:
            raise ValueError(f"there is no column {unknown[0]!r}; the columns are {self._block.column_names}")
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
        """Return the sum of a column; None if it has no values, or a null that is not ignored."""
        return pc.sum(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def min(self, on: str, ignore_nulls: bool) -> Any:
        """Return the minimum of a column; None if it has no values, or a null that is not ignored."""
        return pc.min(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def max(self, on: str, ignore_nulls: bool) -> Any:
        """Return the maximum of a column; None if it has no values, or a null that is not ignored."""
        return pc.max(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def mean(self, on: str, ignore_nulls: bool) -> Any:
        """Return the mean of a column; None if it has no values, or a null that is not ignored."""
        return pc.mean(self._block.column(on), skip_nulls=ignore_nulls).as_py()

    def sum_of_squared_diffs_from_mean(self, on: str, ignore_nulls: bool, mean: float | None = None) -> Any:
        """Return the sum of squared differences of a column from its mean, or from another value."""
        if mean is None:
            mean = self.mean(on, ignore_nulls)
        if mean is None:
            return None
        distances = pc.subtract(self._block.column(on), mean)
        return pc.sum(pc.multiply(distances, distances), skip_nulls=ignore_nulls).as_py()
