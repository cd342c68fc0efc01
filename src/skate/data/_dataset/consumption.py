"""Methods that run the plan and return rows or facts about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data._arguments import NON_NEGATIVE, POSITIVE, checked
from skate.data._block import batches, rows, tables
from skate.data._dataset.base import PlanHolder
from skate.data._exec.items import fetch_rows, store_block
from skate.data._iteration.position import PositionTracker, StartPosition
from skate.data._iteration.sharding import remaining
from skate.data._plan import estimates, nodes
from skate.data._plan.schemas import infer_schema
from skate.data._schema import Schema
from skate.data.iterator import DataIterator, IterationMethods

if TYPE_CHECKING:
    from skate.data.context import DataContext
    from skate.data.dataset import Dataset, MaterializedDataset


class ConsumptionMethods(PlanHolder, IterationMethods):
    """Methods of `Dataset` that run the plan and return its results."""

    @checked(limit=NON_NEGATIVE)
    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """Return the first rows.

        Raises:
            ValueError: The limit is negative.

        >>> import skate
        >>> skate.data.range(100).take(2)
        [{'id': 0}, {'id': 1}]
        """
        return list(self._rows(nodes.Limit(self._node, limit)))

    @checked(limit=NON_NEGATIVE)
    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return all rows.

        Args:
            limit: Raise ValueError if the dataset has more rows, before they fill the memory.
        """
        if limit is None:
            return list(self._rows())
        found = list(self._rows(nodes.Limit(self._node, limit + 1)))
        if len(found) > limit:
            raise ValueError(
                f"The dataset has more than {limit} rows, the limit: raise it, or call take({limit}) for the first "
                "ones."
            )
        return found

    @checked("batch_format", batch_size=POSITIVE)
    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """Return the first rows as one batch.

        Args:
            batch_size: Number of rows.
            batch_format: The format of the batch: "numpy" (the default), "pandas", "pyarrow", "polars".
        """
        found = [each for each in self._tables(nodes.Limit(self._node, batch_size)) if each.num_rows]
        if not found:
            raise ValueError("The dataset is empty.")
        return batches.to_batch(tables.concat(found), batch_format)

    @checked(limit=NON_NEGATIVE)
    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)  # noqa: T201  # printing is the purpose

    def count(self) -> int:
        """Return the number of rows, without reading sources that know it.

        >>> import skate
        >>> skate.data.range(10).filter(lambda row: row["id"] > 5).count()
        4
        """
        known = estimates.row_count(self._node)
        return sum(item.rows for item in self._items()) if known is None else known

    @checked()
    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """Return the columns and their types.

        Args:
            fetch_if_missing: If the schema is unknown, run the plan up to the first rows; otherwise return None.
        """
        if self._schema is None:
            self._schema = infer_schema(self._node)
        if self._schema is None and fetch_if_missing:
            found = None
            for item in self._run(nodes.Limit(self._node, 1)):
                # A block without rows and columns has no schema; a block with rows may have no columns.
                found = item.schema if item.rows or (found is None and item.schema.names) else found
                if item.rows:
                    break
            self._schema = found
        return None if self._schema is None else Schema(self._schema)

    @checked()
    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """Return the names of the columns."""
        schema = self.schema(fetch_if_missing)
        return None if schema is None else schema.names

    def iterator(self) -> DataIterator:
        """Return an iterator over the dataset, which can be passed to tasks and actors."""
        return WholeDatasetIterator(self)

    def materialize(self) -> MaterializedDataset:
        """Run the plan, and return a dataset of its blocks.

        >>> import skate
        >>> kept = skate.data.range(4).map(lambda row: {"x": row["id"]}).materialize()
        >>> kept.count()
        4
        """
        from skate.data.dataset import MaterializedDataset

        made = MaterializedDataset(
            nodes.Values(tuple(map(store_block, self._items())), self._title()), self._context
        )
        made._name = self._name
        made._last = self._last
        return made

    def input_files(self) -> list[str]:
        """Return the paths of the input files."""
        found: dict[str, None] = {}
        for node in self._node.walk():
            if isinstance(node, nodes.Read):
                for task in node.source.get_read_tasks(1):
                    found.update(dict.fromkeys(task.metadata.input_files or ()))
            elif isinstance(node, nodes.Values):
                for item in node.items:
                    found.update(dict.fromkeys(item.files))
        return list(found)

    def size_bytes(self) -> int:
        """Return the bytes of the dataset in memory."""
        if isinstance(self._node, nodes.Values):
            return sum(item.bytes for item in self._node.items)
        known = (
            self._node.source.estimate_inmemory_data_size() if isinstance(self._node, nodes.Read) else None
        )
        return sum(item.bytes for item in self._items()) if known is None else known

    def _blocks(self) -> Iterator[pa.Table]:
        return self._tables()

    def _rows(self, node: nodes.Node | None = None) -> Iterator[dict[str, Any]]:
        for block in self._tables(node):
            yield from rows.to_rows(block)

    def _title(self) -> str:
        return self._node.title


class WholeDatasetIterator(DataIterator):
    """Iterates over a whole dataset."""

    _resumable = "alone"

    def __init__(self, dataset: Any) -> None:
        self._dataset: Dataset = dataset

    def _blocks(self) -> Iterator[pa.Table]:
        if self._tracker is None:
            yield from self._dataset._tables()
            return
        start, number = self._tracker.start, self._tracker.number
        items = iter(self._dataset._run_numbered(number, start.seed))
        for used in start.used_of(number):
            items = remaining(items, used)
        yield from map(fetch_rows, items)

    def _start_at(self, start: StartPosition) -> None:
        self._tracker = PositionTracker(start)

    def schema(self) -> Schema | None:
        """Return the schema of the dataset."""
        return self._dataset.schema()

    def stats(self) -> str:
        """Return the statistics of the latest iteration as text."""
        return self._dataset.stats()

    def get_context(self) -> DataContext:
        """Return the settings of the dataset."""
        return self._dataset.context

    def __repr__(self) -> str:
        return f"DataIterator({self._dataset!r})"
