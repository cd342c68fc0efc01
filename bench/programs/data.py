"""Datasets: a few rows, two million, functions over rows and batches, and operations that need all rows.

Each figure is the median time of the whole job, from the plan to the last row.
"""

from __future__ import annotations

import importlib
from typing import Any

import meter
import table

job = meter.Job()
ray: Any = job.load()
data: Any = importlib.import_module(f"{job.system}.data")
data.DataContext.get_current().enable_progress_bars = False


def seconds(step: Any) -> float:
    """Return the time of a job that has been run before: workers are there, and files are in the page cache."""
    return job.typical(step, warmup_steps=1)


def consumed(dataset: Any) -> int:
    """Run a plan to its end, and return how many rows there were."""
    return sum(len(batch) for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow"))


def expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} rows instead of {wanted}")


def data_five_rows() -> float:
    """Filter five rows."""
    return seconds(lambda: expect(len(data.range(5).filter(lambda row: row["id"] > 2).take_all()), 2))


def data_batches() -> float:
    """Read, compute a column over batches, iterate."""
    path = table.orders()

    def step() -> None:
        ds = data.read_parquet(path).map_batches(lambda batch: {**batch, "taxed": batch["price"] * 1.2})
        expect(sum(len(batch["id"]) for batch in ds.iter_batches(batch_size=4096)), table.ROWS)

    return seconds(step)


def taxed(batch: Any) -> Any:
    import pyarrow.compute as pc

    return batch.append_column("taxed", pc.multiply(batch["price"], 1.2))


def data_batches_arrow() -> float:
    """Do the same with Arrow tables, which need no Python object for each string."""
    path = table.orders()

    def step() -> None:
        ds = data.read_parquet(path).map_batches(taxed, batch_format="pyarrow")
        batches = ds.iter_batches(batch_size=4096, batch_format="pyarrow")
        expect(sum(batch.num_rows for batch in batches), table.ROWS)

    return seconds(step)


def data_map() -> float:
    """Call a function with each of 200,000 rows."""
    return seconds(
        lambda: expect(consumed(data.range(200_000).map(lambda row: {"next": row["id"] + 1})), 200_000)
    )


def data_sort() -> float:
    """Sort by a random number."""
    path = table.orders()
    return seconds(lambda: expect(consumed(data.read_parquet(path).sort("price")), table.ROWS))


def data_groupby() -> float:
    """Average over a thousand groups."""
    path = table.orders()
    return seconds(
        lambda: expect(consumed(data.read_parquet(path).groupby("shop").mean("price")), table.SHOPS)
    )


def data_join() -> float:
    """Join with a row for each shop."""
    path, shops = table.orders(), table.shops()

    def step() -> None:
        joined = data.read_parquet(path).join(data.read_parquet(shops), "inner", job.cpus, on=("shop",))
        expect(consumed(joined), table.ROWS)

    return seconds(step)


def data_shuffle() -> float:
    """Bring all rows into a random order."""
    path = table.orders()
    return seconds(lambda: expect(consumed(data.read_parquet(path).random_shuffle()), table.ROWS))


def data_write() -> float:
    """Read, compute a column over Arrow tables, write."""
    path = table.orders()

    def step() -> None:
        ds = data.read_parquet(path).map_batches(taxed, batch_format="pyarrow")
        ds.write_parquet(table.folder())

    return seconds(step)


if __name__ == "__main__":
    job.run_on(
        ray,
        data_five_rows,
        data_batches,
        data_batches_arrow,
        data_map,
        data_sort,
        data_groupby,
        data_join,
        data_shuffle,
        data_write,
    )
