"""Datasets: lazily evaluated plans that read, transform and write streams of rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from skate import cloudpickle
from skate._api.html_tables import text_html
from skate.data._arguments import check_type, message
from skate.data._block import tables
from skate.data._dataset.aggregation import AggregateMethods
from skate.data._dataset.columns import ColumnMethods
from skate.data._dataset.consumption import ConsumptionMethods
from skate.data._dataset.conversion import ConversionMethods
from skate.data._dataset.display import plan_text, table_as_html, table_text
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
    """An ordered collection of rows with named columns, of any size.

    A dataset is a lazy plan: each transformation returns a new dataset, and nothing runs until rows are requested. Then
    blocks of rows stream through the plan, in worker processes or, if the data are small, in this process. Memory does
    not grow with the data.

    Functions of `skate.data`, such as `read_parquet` and `from_items`, create datasets.

    The methods are defined in one class per topic, in `skate.data._dataset`: `MapMethods` and `ColumnMethods`
    (functions and expressions), `RelationalMethods` (sort, group, join, union), `SplitMethods`, `ConversionMethods`
    (other libraries), `FileWriteMethods` and `TableWriteMethods`, `ExplainMethods`, `AggregateMethods`, and
    `ConsumptionMethods` (rows, schema, counts), which adds iteration from `skate.data.iterator`. Each converts its
    arguments, adds a node to the plan, and returns a dataset of the new plan.

    >>> import skate
    >>> ds = skate.data.from_items([{"name": "Ann", "age": 31}, {"name": "Bo", "age": 7}])
    >>> ds.filter(lambda row: row["age"] >= 18).take_all()
    [{'name': 'Ann', 'age': 31}]
    """

    @staticmethod
    def copy(ds: Dataset, _deep_copy: bool = False, _as: type | None = None) -> Dataset:
        """Return a dataset with the same plan and a copy of the settings."""
        made: Dataset = (_as or type(ds))(ds._node, ds._context)
        made._name = ds._name
        return made

    def num_blocks(self) -> int:
        """Raise NotImplementedError: the number of blocks is unknown before the plan has run."""
        raise NotImplementedError(
            "the number of blocks is unknown before the plan has run: use dataset.materialize().num_blocks()"
        )

    def has_serializable_lineage(self) -> bool:
        """Return whether `serialize_lineage` is supported: the plan contains no rows of this process."""
        return not any(isinstance(node, nodes.Values) for node in self._node.walk())

    def serialize_lineage(self) -> bytes:
        """Return the plan as bytes, from which `deserialize_lineage` creates the dataset in another program."""
        if not self.has_serializable_lineage():
            raise ValueError(
                "the dataset contains rows of this process: write them to files first, and read these"
            )
        data: bytes = cloudpickle.dumps(self)
        return data

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> Dataset:
        """Return the dataset of `serialize_lineage`. Unpickling runs code: the source must be trusted."""
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

    def _repr_html_(self) -> str:
        schema = self.schema(fetch_if_missing=False)
        if schema is None or not schema.names:
            return text_html(plan_text(self._node, type(self).__name__, self._name))
        items = self._node.items if isinstance(self._node, nodes.Values) else None
        return table_as_html(schema.base_schema, estimates.row_count(self._node), items, self._name)

    def __len__(self) -> int:
        raise AttributeError("A Dataset has no len(): call .count(), which may have to run the whole plan.")

    def __iter__(self) -> Any:
        raise TypeError("A Dataset cannot be iterated itself: loop over .iter_rows() or .iter_batches().")


class MaterializedDataset(Dataset):
    """A dataset whose blocks exist."""

    _node: nodes.Values

    def num_blocks(self) -> int:
        """Return the number of blocks."""
        return len(self._node.items)

    def materialize(self) -> MaterializedDataset:
        """Return the dataset itself."""
        return self


def materialized(
    blocks: Iterable[pa.Table], context: DataContext | None = None, label: str = "Input"
) -> MaterializedDataset:
    """Return a materialized dataset of blocks."""
    items = tuple(Item(block, block.num_rows, tables.nbytes(block), block.schema) for block in blocks)
    return MaterializedDataset(nodes.Values(items, label), context)
