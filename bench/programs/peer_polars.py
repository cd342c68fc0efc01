"""What Polars can do of the data rows: all that needs no function of the user's in Python."""

from __future__ import annotations

from typing import Any


def measure() -> None:
    import meter
    import polars as pl
    import table

    job = meter.Job()

    def scan(path: str) -> Any:
        return pl.scan_parquet(f"{path}/*.parquet")

    def seconds(step: Any) -> float:
        return job.typical(step, warmup_steps=1)

    def data_five_rows() -> float:
        return seconds(lambda: pl.LazyFrame({"id": range(5)}).filter(pl.col("id") > 2).collect().to_dicts())

    def data_sort() -> float:
        path = table.orders()
        return seconds(lambda: scan(path).sort("price").collect())

    def data_groupby() -> float:
        path = table.orders()
        return seconds(lambda: scan(path).group_by("shop").agg(pl.col("price").mean()).collect())

    def data_join() -> float:
        path, shops = table.orders(), table.shops()
        return seconds(lambda: scan(path).join(scan(shops), on="shop").collect())

    def data_shuffle() -> float:
        path = table.orders()
        return seconds(lambda: scan(path).collect().sample(fraction=1.0, shuffle=True))

    job.run(data_five_rows, data_sort, data_groupby, data_join, data_shuffle)


if __name__ == "__main__":
    measure()
