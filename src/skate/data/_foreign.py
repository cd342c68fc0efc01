"""Datasets made of what other libraries hold."""

from __future__ import annotations

from typing import Any

from skate.data._optional import load
from skate.data.dataset import MaterializedDataset


def from_dask(df: Any) -> MaterializedDataset:
    """Return a dataset of a Dask DataFrame, a block for each partition."""
    from skate.data.read_api import from_pandas

    compute = load("dask", "from_dask").compute
    return from_pandas(list(compute(*df.to_delayed())))


def from_modin(df: Any) -> MaterializedDataset:
    """Return a dataset of a Modin DataFrame."""
    from skate.data.read_api import from_pandas

    return from_pandas(df.modin.to_pandas() if hasattr(df, "modin") else df._to_pandas())


def from_daft(df: Any) -> MaterializedDataset:
    """Return a dataset of a Daft DataFrame."""
    from skate.data.read_api import from_arrow

    return from_arrow(df.to_arrow())


def from_spark(
    df: Any, *, parallelism: int | None = None, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Return a dataset of a Spark DataFrame."""
    from skate.data.read_api import from_pandas

    return from_pandas(df.toPandas(), override_num_blocks or parallelism)


def from_polars(df: Any, *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """Return a dataset of a Polars DataFrame or LazyFrame."""
    from skate.data.read_api import from_arrow

    return from_arrow(
        (df.collect() if hasattr(df, "collect") else df).to_arrow(), override_num_blocks=override_num_blocks
    )


def from_tf(dataset: Any) -> MaterializedDataset:
    """Return a dataset of a `tf.data.Dataset`, which has to fit into memory."""
    from skate.data.read_api import from_items

    return from_items(list(dataset.as_numpy_iterator()))
