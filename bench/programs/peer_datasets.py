"""What Hugging Face datasets can do of the data rows: functions over rows and batches, and writing."""

from __future__ import annotations

from typing import Any


def measure() -> None:
    import os

    # Read when the package is imported: a step that found the last one's results would measure nothing.
    import table

    os.environ["HF_DATASETS_CACHE"] = table.folder()
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    import datasets
    import meter
    import pyarrow.compute as pc

    job = meter.Job()
    datasets.disable_caching()
    datasets.disable_progress_bars()

    def read(path: str) -> Any:
        files = sorted(os.path.join(path, name) for name in os.listdir(path))
        return datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)

    def taxed(batch: Any) -> Any:
        return batch.append_column("taxed", pc.multiply(batch["price"], 1.2))

    def seconds(step: Any) -> float:
        return job.typical(step, warmup_steps=1)

    def mapped(path: str) -> Any:
        return read(path).with_format("arrow").map(taxed, batched=True, batch_size=4096)

    def data_batches_arrow() -> float:
        path = table.orders()

        def step() -> None:
            found = sum(batch.num_rows for batch in mapped(path).iter(batch_size=4096))
            if found != table.ROWS:
                raise RuntimeError(f"{found} rows instead of {table.ROWS}")

        return seconds(step)

    def data_map() -> float:
        numbers = datasets.Dataset.from_dict({"id": range(200_000)})
        return seconds(lambda: numbers.map(lambda row: {"next": row["id"] + 1}, remove_columns="id"))

    def data_write() -> float:
        path = table.orders()
        return seconds(lambda: mapped(path).to_parquet(os.path.join(table.folder(), "taxed.parquet")))

    job.run(data_batches_arrow, data_map, data_write)


if __name__ == "__main__":
    measure()
