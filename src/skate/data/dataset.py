"""Datasets: rows that are read, transformed and written as they stream by."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from skate import cloudpickle
from skate.data._arguments import check_type, message
from skate.data._block import tables
from skate.data._dataset.aggregation import AggregateMethods
from skate.data._dataset.columns import ColumnMethods
from skate.data._dataset.consumption import ConsumptionMethods
from skate.data._dataset.conversion import ConversionMethods
from skate.data._dataset.display import plan_text, table_text
from skate.data._dataset.explain import ExplainMethods
from skate.data._dataset.relational import RelationalMethods
from skate.data._dataset.splitting import SplitMethods
from skate.data._dataset.writing_files import FileWriteMethods
from skate.data._exec.items import Item
from skate.data._plan import estimates, nodes
from skate.data._schema import Schema
from skate.data.context import DataContext

__all__ = ["Dataset", "MaterializedDataset", "Schema"]


class Dataset(
    ColumnMethods,
    RelationalMethods,
    SplitMethods,
    ConversionMethods,
    FileWriteMethods,
    ExplainMethods,
    AggregateMethods,
    ConsumptionMethods,
):
    """Rows with named columns, of any size, in order.

    A dataset is a plan: reading, mapping or sorting one gives another, and nothing is done until somebody wants rows.
    Then blocks of rows stream through the plan, in worker processes or, if there are few of them, in this one; memory
    does not grow with the data.

    Make one with a function of `skate.data`, such as `read_parquet` or `from_items`.

    >>> import skate
    >>> ds = skate.data.from_items([{"name": "Ann", "age": 31}, {"name": "Bo", "age": 7}])
    >>> ds.filter(lambda row: row["age"] >= 18).take_all()
    [{'name': 'Ann', 'age': 31}]
    """

    @staticmethod
    def copy(ds: Dataset, _deep_copy: bool = False, _as: type | None = None) -> Dataset:
        """Return a dataset that is the same plan, with settings of its own."""
        made: Dataset = (_as or type(ds))(ds._node, ds._context)
        made._name = ds._name
        return made

    def num_blocks(self) -> int:
        """Not known before a plan has run: materialize the dataset first."""
        raise NotImplementedError(
            "the number of blocks is known once the plan has run: dataset.materialize().num_blocks()"
        )

    def has_serializable_lineage(self) -> bool:
        """Return whether `serialize_lineage` works: whether all that the plan needs is in files."""
        return not any(isinstance(node, nodes.Values) for node in self._node.walk())

    def serialize_lineage(self) -> bytes:
        """Return the plan as bytes, from which another program can make the dataset: `deserialize_lineage`."""
        if not self.has_serializable_lineage():
            raise ValueError(
                "the dataset holds rows that are only in this program: write them to files first, and read these"
            )
        data: bytes = cloudpickle.dumps(self)
        return data

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> Dataset:
        """Return the dataset that `serialize_lineage` wrote; it runs code, so that its source must be trusted."""
        words = "bytes that Dataset.serialize_lineage returned"
        check_type("serialized_ds", serialized_ds, bytes, words)
        try:
            made: Dataset = cloudpickle.loads(serialized_ds)
        except (pickle.UnpicklingError, EOFError) as error:
            raise ValueError(message("serialized_ds", words, serialized_ds)) from error
        return made

    def __repr__(self) -> str:
        schema = self.schema(fetch_if_missing=False)
        if schema is None or not schema.names:
            return plan_text(self._node, type(self).__name__, self._name)
        items = self._node.items if isinstance(self._node, nodes.Values) else None
        return table_text(schema.base_schema, estimates.row_count(self._node), items)

    def __len__(self) -> int:
        raise AttributeError(
            "Use `ds.count()` to compute the length of a distributed Dataset. This may be an expensive operation."
        )

    def __iter__(self) -> Any:
        raise TypeError(
            "`Dataset` objects aren't iterable. To iterate records, call `ds.iter_rows()` or `ds.iter_batches()`."
        )


class MaterializedDataset(Dataset):
    """A dataset whose blocks are there."""

    _node: nodes.Values

    def num_blocks(self) -> int:
        """Return the number of blocks."""
        return len(self._node.items)

    def materialize(self) -> MaterializedDataset:
        """Return the dataset: its blocks are there."""
        return self


def materialized(
    blocks: Iterable[pa.Table], context: DataContext | None = None, label: str = "Input"
) -> MaterializedDataset:
    """Return a dataset of these blocks."""
    items = tuple(Item(block, block.num_rows, tables.nbytes(block), block.schema) for block in blocks)
    return MaterializedDataset(nodes.Values(items, label), context)
