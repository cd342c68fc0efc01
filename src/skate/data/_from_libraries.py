"""Create datasets from objects of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from skate.air._optional import load
from skate.data._arguments import POSITIVE, check_protocol, checked
from skate.data._block import columns
from skate.data.dataset import MaterializedDataset

__all__ = ["from_daft", "from_dask", "from_mars", "from_modin", "from_polars", "from_spark", "from_tf"]

_TENSOR_PARTS = {"data", "shape"}


def from_dask(df: Any) -> MaterializedDataset:
    """Create a dataset from a Dask DataFrame, with one block per partition."""
    from skate.data.read_api import from_pandas

    compute = load("dask", "from_dask").compute
    check_protocol("df", df, "to_delayed", "a Dask DataFrame")
    return from_pandas(list(compute(*df.to_delayed())))


def from_mars(df: Any) -> MaterializedDataset:
    """Create a dataset from a Mars DataFrame, which is computed and loaded into this process."""
    from skate.data.read_api import from_pandas

    return from_pandas(df.to_pandas())


def from_modin(df: Any) -> MaterializedDataset:
    """Create a dataset from a Modin DataFrame."""
    from skate.data.read_api import from_pandas

    check_protocol("df", df, "_to_pandas", "a Modin DataFrame")
    return from_pandas(df.modin.to_pandas() if hasattr(df, "modin") else df._to_pandas())


def from_daft(df: Any) -> MaterializedDataset:
    """Create a dataset from a Daft DataFrame."""
    from skate.data.read_api import from_arrow

    check_protocol("df", df, "to_arrow", "a Daft DataFrame")
    return from_arrow(_restore_tensors(df.to_arrow()))


def _restore_tensors(table: pa.Table) -> pa.Table:
    """Convert Daft's tensors, which are structs of values and shapes, to tensor columns."""
    for index, field in enumerate(table.schema):
        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else None
        if (
            storage is None
            or not pa.types.is_struct(storage)
            or {each.name for each in storage} != _TENSOR_PARTS
        ):
            continue
        tensors = [
            None if value is None else np.asarray(value["data"]).reshape(value["shape"])
            for chunk in table.column(index).chunks
            for value in chunk.storage.to_pylist()
        ]
        column = columns.to_column(tensors, field.name)
        table = table.set_column(index, pa.field(field.name, column.type), column)
    return table


@checked(parallelism=POSITIVE, override_num_blocks=POSITIVE)
def from_spark(
    df: Any, *, parallelism: int | None = None, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset from a Spark DataFrame."""
    from skate.data.read_api import from_pandas

    check_protocol("df", df, "toPandas", "a Spark DataFrame")
    return from_pandas(df.toPandas(), override_num_blocks or parallelism)


@checked(override_num_blocks=POSITIVE)
def from_polars(df: Any, *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """Create a dataset from a Polars DataFrame or LazyFrame."""
    from skate.data.read_api import from_arrow

    if not hasattr(df, "collect"):
        check_protocol("df", df, "to_arrow", "a Polars DataFrame or LazyFrame")
    return from_arrow(
        (df.collect() if hasattr(df, "collect") else df).to_arrow(), override_num_blocks=override_num_blocks
    )


def from_tf(dataset: Any) -> MaterializedDataset:
    """Create a dataset from a `tf.data.Dataset`, which must fit into memory."""
    from skate.data.read_api import from_items

    check_protocol("dataset", dataset, "as_numpy_iterator", "a tf.data.Dataset")
    return from_items(list(dataset.as_numpy_iterator()))
