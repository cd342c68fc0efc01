"""What DuckDB can do of the data rows: all that needs no function of the user's in Python."""

from __future__ import annotations

from typing import Any


def measure() -> None:
    import duckdb
    import meter
    import table

    job = meter.Job()
    duckdb.execute(f"SET threads = {job.cpus}")

    def seconds(query: str) -> float:
        def step() -> Any:
            return duckdb.sql(query).arrow().read_all()

        return job.typical(step, warmup_steps=1)

    def data_five_rows() -> float:
        return seconds("SELECT * FROM range(5) AS t(id) WHERE id > 2")

    def data_sort() -> float:
        return seconds(f"SELECT * FROM '{table.orders()}/*.parquet' ORDER BY price")

    def data_groupby() -> float:
        return seconds(f"SELECT shop, avg(price) FROM '{table.orders()}/*.parquet' GROUP BY shop")

    def data_join() -> float:
        path, shops = table.orders(), table.shops()
        return seconds(f"SELECT * FROM '{path}/*.parquet' JOIN '{shops}/*.parquet' USING (shop)")

    job.run(data_five_rows, data_sort, data_groupby, data_join)


if __name__ == "__main__":
    measure()
