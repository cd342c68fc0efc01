"""What Daft can do of the data rows: all of them but the shuffle."""

from __future__ import annotations

from typing import Any


def measure() -> None:
    import daft
    import meter
    import table
    from daft import col

    job = meter.Job()
    daft.set_runner_native()

    def read(path: str) -> Any:
        return daft.read_parquet(f"{path}/*.parquet")

    def seconds(step: Any) -> float:
        return job.typical(step, warmup_steps=1)

    def iterated(frame: Any) -> int:
        return sum(part.num_rows for part in frame.to_arrow_iter())

    @daft.func.batch(return_dtype=daft.DataType.float64())  # type: ignore[untyped-decorator]
    def taxed(price: Any) -> Any:
        return price.to_arrow().to_numpy() * 1.2

    @daft.func  # type: ignore[untyped-decorator]
    def following(number: int) -> int:
        return number + 1

    def data_five_rows() -> float:
        return seconds(lambda: daft.from_pydict({"id": list(range(5))}).where(col("id") > 2).to_pylist())

    def data_batches() -> float:
        path = table.orders()

        def batches() -> Any:
            for part in read(path).with_column("taxed", taxed(col("price"))).to_arrow_iter():
                # One conversion for many batches is cheaper than one for each.
                columns = {
                    name: part.column(name).to_numpy(zero_copy_only=False) for name in part.schema.names
                }
                for start in range(0, part.num_rows, 4096):
                    yield {name: array[start : start + 4096] for name, array in columns.items()}

        def step() -> None:
            found = sum(len(batch["id"]) for batch in batches())
            if found != table.ROWS:
                raise RuntimeError(f"{found} rows instead of {table.ROWS}")

        return seconds(step)

    def data_batches_arrow() -> float:
        path = table.orders()
        return seconds(lambda: iterated(read(path).with_column("taxed", taxed(col("price")))))

    def data_map() -> float:
        return seconds(lambda: iterated(daft.range(200_000).select(following(col("id")))))

    def data_sort() -> float:
        path = table.orders()
        return seconds(lambda: iterated(read(path).sort("price")))

    def data_groupby() -> float:
        path = table.orders()
        return seconds(lambda: iterated(read(path).groupby("shop").agg(col("price").mean())))

    def data_join() -> float:
        path, shops = table.orders(), table.shops()
        return seconds(lambda: iterated(read(path).join(read(shops), on="shop")))

    def data_write() -> float:
        path = table.orders()
        return seconds(
            lambda: read(path).with_column("taxed", taxed(col("price"))).write_parquet(table.folder())
        )

    job.run(
        data_five_rows,
        data_batches,
        data_batches_arrow,
        data_map,
        data_sort,
        data_groupby,
        data_join,
        data_write,
    )


if __name__ == "__main__":
    measure()
