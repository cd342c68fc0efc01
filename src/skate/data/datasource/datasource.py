"""Datasources, from which datasets are read in tasks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data._block import batches
from skate.data._io import pickled_columns
from skate.data.block import BlockMetadata

if TYPE_CHECKING:
    from skate.data.expressions import Expr


class ReadTask:
    """Read one part of a datasource when called, as an iterator of blocks.

    Args:
        read_fn: Function without arguments that returns an iterable of blocks. It is pickled and runs in a worker.
        metadata: Metadata known before the part is read.
        schema: Schema of the blocks, if known.
        per_task_row_limit: Maximum number of rows to read.
        identity: Identifier of this part of the datasource, the same in every process and run, by which a resumed job
            recognizes it; None if there is none.
    """

    def __init__(
        self,
        read_fn: Callable[[], Iterable[Any]],
        metadata: BlockMetadata,
        schema: pa.Schema | None = None,
        per_task_row_limit: int | None = None,
        *,
        identity: str | None = None,
    ) -> None:
        self._read_fn = read_fn
        self._metadata = metadata
        self._schema = schema
        self._per_task_row_limit = per_task_row_limit
        self._identity = identity
        self._trusted = pickled_columns.may_unpickle(pickled_columns.RAY_ALLOW_PICKLED)

    @property
    def metadata(self) -> BlockMetadata:
        """Metadata known before the part is read."""
        return self._metadata

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the blocks, if known."""
        return self._schema

    @property
    def read_fn(self) -> Callable[[], Iterable[Any]]:
        """The function that reads the blocks."""
        return self._read_fn

    @property
    def per_task_row_limit(self) -> int | None:
        """The maximum number of rows to read."""
        return self._per_task_row_limit

    @property
    def identity(self) -> str | None:
        """The identifier of this part of the datasource."""
        return self._identity

    def __call__(self) -> Iterator[pa.Table]:
        """Read the part.

        Raises:
            TypeError: The function did not return an iterable of blocks.
        """
        found = self._read_fn()
        if isinstance(found, pa.Table) or not isinstance(found, Iterable):
            raise TypeError(
                f"read_fn of a ReadTask returned a {type(found).__name__}: return a list of blocks, or yield them"
            )
        left = self._per_task_row_limit
        for item in found:
            block = (
                pickled_columns.restore_objects(item, self._trusted)
                if isinstance(item, pa.Table)
                else batches.to_block(item)
            )
            if left is not None:
                block = block.slice(0, left)
                left -= block.num_rows
            yield block
            if left == 0:
                return


class Datasource:
    """Base class of custom datasources.

    Only `get_read_tasks` is required; the other methods improve plans.

    >>> import pyarrow as pa
    >>> class Numbers(Datasource):
    ...     def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
    ...         metadata = BlockMetadata(num_rows=3, size_bytes=24, input_files=None, exec_stats=None)
    ...         return [ReadTask(lambda: [pa.table({"n": [1, 2, 3]})], metadata)]
    >>> [task] = Numbers().get_read_tasks(1)
    >>> [block.num_rows for block in task()]
    [3]
    """

    def get_name(self) -> str:
        """Return the name for plans and statistics."""
        return type(self).__name__.removesuffix("Datasource").lstrip("_") or type(self).__name__

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the size of the data in memory, in bytes; None if unknown."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Divide the datasource into tasks.

        Args:
            parallelism: Desired number of tasks; more or fewer are allowed.
            per_task_row_limit: Maximum number of rows that a task needs to read.
            data_context: The settings of the plan.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_read_tasks(parallelism)")

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether any worker can read; False reads in the driver process."""
        return True

    # The following methods are extensions of Skate.

    def schema(self) -> pa.Schema | None:
        """Return the schema of the blocks if it is known without reading data."""
        return None

    def num_rows(self) -> int | None:
        """Return the exact number of rows if it is known without reading data."""
        return None

    def apply_projection(self, columns: list[str]) -> Datasource | None:
        """Return a datasource that reads only these columns, in this order; None if not supported."""
        return None

    def apply_predicate(self, predicate: Expr) -> tuple[Datasource, Expr | None] | None:
        """Return a datasource that reads only matching rows, and the remaining filter; None if not supported."""
        return None

    def _replace(self, **attributes: Any) -> Any:
        """Return a copy with some attributes replaced, for the `apply_` methods."""
        other = copy.copy(self)
        for name, value in attributes.items():
            setattr(other, name, value)
        return other
